package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"time"
)

// warmRounds run before the rounds that count: connections grow their windows,
// pools fill, the heap finds its size.
const warmRounds = 3

// settings are the flags.
type settings struct {
	rounds  int
	calls   int
	callers int
	peak    bool
	json    bool
}

// runRounds measures all suites, one after another.
func runRounds(ctx context.Context, all []suite, set settings, progress io.Writer) error {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	for _, s := range all {
		if err := s.run(ctx, set, progress); err != nil {
			return err
		}
	}
	return nil
}

func (s suite) run(ctx context.Context, set settings, progress io.Writer) error {
	operations := max(set.calls/s.load.weight, 1)
	callers := min(set.callers, operations)
	told := time.Now()
	for round := range set.rounds + warmRounds {
		if round == warmRounds {
			for _, l := range s.lanes {
				l.blocks = l.blocks[:0]
			}
		}
		for _, i := range rand.Perm(len(s.lanes)) {
			if err := s.lanes[i].measure(ctx, s.load, operations, callers); err != nil {
				return err
			}
		}
		if done := round + 1 - warmRounds; done == set.rounds || time.Since(told) > 2*time.Second {
			told = time.Now()
			fmt.Fprintf(progress, "%s: round %d of %d\n", s.load.name, done, set.rounds)
		}
	}
	return nil
}
