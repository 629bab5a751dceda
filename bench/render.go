package main

import (
	"context"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"runtime/debug"
	"strings"
	"time"
)

// machine is where and with what a run was made.
type machine struct {
	Date   string `json:"date"`
	System string `json:"system"`
	CPUs   int    `json:"cpus"`
	Go     string `json:"go"`
	GRPC   string `json:"grpc"`
	Kratos string `json:"kratos"`
	Commit string `json:"commit"`
}

func describeMachine(ctx context.Context) machine {
	m := machine{
		Date: time.Now().UTC().Format(time.DateOnly), System: runtime.GOOS + "/" + runtime.GOARCH,
		CPUs: runtime.NumCPU(), Go: runtime.Version(), Commit: "unknown",
	}
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, dep := range info.Deps {
			switch dep.Path {
			case "google.golang.org/grpc":
				m.GRPC = dep.Version
			case "github.com/go-kratos/kratos/v2":
				m.Kratos = dep.Version
			}
		}
	}
	// Outside a checkout there is no commit to name.
	if out, err := exec.CommandContext(ctx, "git", "describe", "--always", "--dirty", "--exclude=*").Output(); err == nil {
		m.Commit = strings.TrimSpace(string(out))
	}
	return m
}

// markdown writes the report as a page.
func (r *report) markdown(w io.Writer) error {
	var b strings.Builder
	m := r.Machine
	fmt.Fprintf(&b, "# Benchmark of %s\n\n", m.Date)
	fmt.Fprintf(&b, "Commit %s, %s, %d CPUs, %s, grpc-go %s, Kratos %s. 100 B payloads, TCP loopback, client and server in one process, %d callers on one connection.\n",
		m.Commit, m.System, m.CPUs, m.Go, m.GRPC, m.Kratos, r.Callers)
	if len(r.Suites) > 0 {
		fmt.Fprintf(&b, "%d interleaved rounds of %d calls a lane, GOMAXPROCS=1, CPU of the process by getrusage; the ratio is the median of the per-round ratios to the first row, with its 95 %% interval.\n", r.Rounds, r.Calls)
	}
	for _, s := range r.Suites {
		s.markdown(&b)
	}
	if len(r.Goroutines) > 0 {
		b.WriteString("\n## Goroutines for a unary call in flight, without the caller's\n\n| peer | goroutines |\n|---|---|\n")
		for _, g := range r.Goroutines {
			fmt.Fprintf(&b, "| %s | %.2f |\n", g.Name, g.Each)
		}
	}
	if len(r.Peak) > 0 {
		fmt.Fprintf(&b, "\n## Peak rate, unary, all cores\n\n| peer | calls/s | to %s [95 %%] |\n|---|---|---|\n", nameRaw)
		for _, p := range r.Peak {
			fmt.Fprintf(&b, "| %s | %.0f | %s |\n", p.Name, p.Rate, p.Ratio)
		}
	}
	b.WriteString("\n## Verdict\n\n")
	if len(r.Verdict) == 0 {
		b.WriteString("All judged budgets hold.\n")
	}
	for _, line := range r.Verdict {
		fmt.Fprintf(&b, "- %s\n", line)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func (s suiteReport) markdown(b *strings.Builder) {
	fmt.Fprintf(b, "\n## %s\n\n", s.Workload)
	b.WriteString("| lane | allocs/op | added | B/op | added | CPU us/op | ratio [95 %] |\n|---|---|---|---|---|---|---|\n")
	for _, l := range s.Lanes {
		ratio := "1"
		if l.Ratio != nil {
			ratio = l.Ratio.String()
		}
		fmt.Fprintf(b, "| %s | %.1f | %+.1f | %.0f | %+.0f | %.1f | %s |\n",
			l.Name, l.Allocs, l.AddedAllocs, l.Bytes, l.AddedBytes, l.CPU, ratio)
	}
}

// String writes the median and its bounds.
func (i interval) String() string { return fmt.Sprintf("%.3f [%.3f, %.3f]", i.Median, i.Low, i.High) }
