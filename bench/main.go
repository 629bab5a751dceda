package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
)

const (
	exitMissed = 1
	exitUsage  = 2
	exitVoid   = 3
)

// errMissed is the end of a run that missed a budget.
var errMissed = errors.New("a budget is missed")

func main() {
	var set settings
	flag.IntVar(&set.rounds, "rounds", 500, "interleaved rounds; fewer than 100 judge allocations alone")
	flag.IntVar(&set.calls, "calls", 240, "unary calls in a block; streams are scaled to about the same work")
	flag.IntVar(&set.callers, "callers", 16, "concurrent callers")
	flag.BoolVar(&set.peak, "peak", false, "measure the peak rate on all cores instead")
	flag.BoolVar(&set.json, "json", false, "write JSON instead of Markdown")
	flag.Parse()
	if set.rounds < 1 || set.calls < 1 || set.callers < 1 || flag.NArg() > 0 {
		fmt.Fprintln(os.Stderr, "bench: -rounds, -calls and -callers are at least 1, and there are no arguments")
		flag.Usage()
		os.Exit(exitUsage)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, set, os.Stdout, os.Stderr)
	stop()
	if err == nil {
		return
	}
	fmt.Fprintln(os.Stderr, "bench:", err)
	if errors.Is(err, errVoid) {
		os.Exit(exitVoid)
	}
	os.Exit(exitMissed)
}

// run measures, reports and judges.
func run(ctx context.Context, set settings, out, progress io.Writer) (err error) {
	peers, err := startPeers(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, closePeers(peers)) }()

	r := &report{Machine: describeMachine(ctx), Callers: set.callers, Verdict: []string{}}
	void := false
	if set.peak {
		r.Callers = peakCallers
		lanes, err := runPeak(ctx, peers, progress)
		if err != nil {
			return err
		}
		r.addPeak(lanes)
	} else {
		r.Rounds, r.Calls = set.rounds, set.calls
		if void, err = r.costs(ctx, peers, set, progress); err != nil {
			return err
		}
	}
	if err := r.write(out, set.json); err != nil {
		return err
	}
	switch {
	case void:
		return errVoid
	case len(r.Verdict) > 0:
		return errMissed
	}
	return nil
}

// costs fills in CPU, allocations and goroutines.
func (r *report) costs(ctx context.Context, peers []*peer, set settings, progress io.Writer) (void bool, err error) {
	all := suites(peers)
	if err := runRounds(ctx, all, set, progress); err != nil {
		return false, err
	}
	for _, s := range all {
		void = r.add(s) || void
	}
	for _, p := range peers {
		each, err := p.countGoroutines(ctx)
		if err != nil {
			return false, fmt.Errorf("count goroutines of %s: %w", p.name, err)
		}
		r.addGoroutines(p.name, each)
	}
	return void, nil
}

func (r *report) write(out io.Writer, asJSON bool) error {
	if !asJSON {
		return r.markdown(out)
	}
	return json.NewEncoder(out).Encode(r)
}
