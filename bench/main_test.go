package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
)

// TestBudgetAllocations runs the command as CI does, built without the race
// detector, which allocates itself.
func TestBudgetAllocations(t *testing.T) {
	binary := filepath.Join(t.TempDir(), "bench")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("build: %v\n%s", err, out)
	}
	var progress bytes.Buffer
	cmd := exec.CommandContext(t.Context(), binary, "-rounds", "20", "-json")
	cmd.Stderr = &progress
	out, err := cmd.Output()
	if exit := (*exec.ExitError)(nil); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	var got report
	if err := json.Unmarshal(out, &got); err != nil {
		t.Fatalf("no report: %v\n%s\n%s", err, out, progress.Bytes())
	}
	for _, line := range got.Verdict {
		t.Error(line)
	}
	if err != nil && len(got.Verdict) == 0 {
		t.Errorf("%v without a verdict:\n%s", err, progress.Bytes())
	}
	for _, s := range got.Suites {
		for _, l := range s.Lanes {
			t.Logf("%-16s %-40s %6.1f allocs/op (%+.1f), %6.0f B/op (%+.0f)", s.Workload, l.Name, l.Allocs, l.AddedAllocs, l.Bytes, l.AddedBytes)
		}
	}
}

func TestMedianOf(t *testing.T) {
	hundred := make([]float64, 100)
	for i := range hundred {
		hundred[i] = float64(i + 1)
	}
	slices.Reverse(hundred)
	for _, test := range []struct {
		name    string
		samples []float64
		want    interval
	}{
		{"one", []float64{3}, interval{3, 3, 3}},
		{"few give the range", []float64{9, 1, 5}, interval{5, 1, 9}},
		{"even", []float64{4, 1, 3, 2}, interval{2.5, 1, 4}},
		// For B binomial(100, 1/2), P(41 <= B <= 60) is 0.954: ranks 41 and 61.
		{"hundred", hundred, interval{50.5, 41, 61}},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got := medianOf(test.samples); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

// fill gives a lane blocks of the given CPU and allocations.
func fill(l *lane, rounds int, cpu, allocs float64) {
	for range rounds {
		l.blocks = append(l.blocks, block{cpu: cpu, allocs: allocs})
	}
}

func TestJudge(t *testing.T) {
	peers := []*peer{{name: nameSame}, {name: nameOurs}}
	for _, test := range []struct {
		name         string
		rounds       int
		control, cpu float64 // to a base of 100
		added        float64
		void         bool
		faults       int
	}{
		{"all well", 100, 100.9, 109, 6, false, 0},
		{"control off", 100, 102, 100, 0, true, 1},
		{"control off, too few rounds to judge", 99, 102, 150, 6, false, 0},
		{"too many allocations", 20, 100, 100, 7, false, 1},
		{"too slow", 100, 100, 111, 0, false, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			s := newSuite(unary(), peers, []string{nameOurs})
			fill(s.lanes[0], test.rounds, 100, 140)
			fill(s.lanes[1], test.rounds, test.control, 140)
			fill(s.lanes[2], test.rounds, test.cpu, 140+test.added)
			r := &report{Rounds: test.rounds}
			if void := r.add(s); void != test.void || len(r.Verdict) != test.faults {
				t.Errorf("void %v with verdict %q, want %v with %d sentences", void, r.Verdict, test.void, test.faults)
			}
		})
	}
}
