package main

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	grpcstatus "google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

// TestRollingRestarts runs the README's command, as a binary of its own, for as
// short as it takes to restart and to kill, once with and once without the
// window.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, window := range []string{"300ms", "0"} {
		t.Run("window "+window, func(t *testing.T) {
			t.Parallel()
			command := exec.CommandContext(t.Context(), binary, "-duration", "5s", "-rate", "100", "-window", window, "-json")
			var progress strings.Builder
			command.Stderr = &progress
			out, err := command.Output()
			if err != nil {
				t.Fatalf("%v\n%s", err, progress.String())
			}
			lines := strings.Split(strings.TrimSpace(string(out)), "\n")
			var got map[string]float64
			if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
				t.Fatalf("last line %q: %v", lines[len(lines)-1], err)
			}
			if got["failed"] != 0 || got["calls"] < 400 || got["streams"] < 40 || got["restarts"] < 1 || got["servers"] != 3 ||
				got["p50_ms"] < 20 || got["p99_ms"] < got["p50_ms"] {
				t.Errorf("summary %v\n%s", got, progress.String())
			}
		})
	}
}

func TestConfigReportsAllFaultsAtOnce(t *testing.T) {
	t.Parallel()
	_, err := parseConfig([]string{"-duration", "1s", "-rate", "0", "-window", "-1s", "-rtt", "2s", "-servers", "1"}, io.Discard)
	for _, flag := range []string{"-duration is 1s", "-rate is 0", "-window is -1s", "-rtt is 2s", "-servers is 1"} {
		if err == nil || !strings.Contains(err.Error(), flag) {
			t.Errorf("error %v does not say %q", err, flag)
		}
	}
	for _, args := range [][]string{{"-nope"}, {"argument"}} {
		if _, err := parseConfig(args, io.Discard); err == nil || !strings.Contains(err.Error(), "-h lists the flags") {
			t.Errorf("%q: %v", args, err)
		}
	}
	c, err := parseConfig(nil, io.Discard)
	if err != nil || c.duration != 15*time.Second || c.rate != 500 || c.servers != 3 {
		t.Errorf("defaults %+v, %v", c, err)
	}
}

func TestTallyTellsLostFromFailed(t *testing.T) {
	t.Parallel()
	counts := newTally(func(id string) state {
		return map[string]state{"dead": killed, "alive": serving}[id]
	})
	cut := func(id string) error {
		return materpc.Classified(materpc.ConnectionLost, grpcstatus.Error(codes.Unavailable, "cut"), &materpc.Peer{ID: id})
	}
	moved := &record{shape: shape{name: "unary"}}
	moved.moved.Store(true)
	counts.ended(moved, "alive", 20*time.Millisecond, nil)
	counts.ended(&record{shape: streamShapes[0]}, "alive", time.Second, nil)
	counts.ended(&record{}, "", 0, cut("dead"))  // inside the killed process
	counts.ended(&record{}, "", 0, cut("alive")) // nobody killed that one
	counts.ended(&record{}, "", 0, errors.New("whatever"))
	s := summarize(config{}, counts, &script{}, time.Second, 0)
	if s.Calls != 5 || s.Streams != 1 || s.Failed != 2 || s.Lost != 1 || s.Repicked != 1 {
		t.Errorf("summary %+v", s)
	}
	if s.P50 < 19.8 || s.P50 > 20.4 {
		t.Errorf("p50 is %v ms of one call of 20 ms", s.P50)
	}
	if s.verdict() == nil {
		t.Error("failed calls are no error")
	}
}

// TestUnusableRegistry: what cannot be written is told in one line, and nothing
// is started.
func TestUnusableRegistry(t *testing.T) {
	t.Parallel()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	err := demonstrate([]string{"-registry", file}, io.Discard, io.Discard)
	if err == nil || !strings.Contains(err.Error(), file) {
		t.Errorf("error %v does not name %s", err, file)
	}
}
