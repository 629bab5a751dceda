package main

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

const (
	peakRounds  = 40
	peakBlock   = 250 * time.Millisecond
	peakCallers = 32
)

// peakLane is a peer's rate in calls a second, a value a round.
type peakLane struct {
	peer  *peer
	rates []float64
}

// runPeak measures how many unary calls a second each peer carries on all
// cores, client and server in this process, one connection, 32 callers.
func runPeak(ctx context.Context, peers []*peer, progress io.Writer) ([]*peakLane, error) {
	lanes := make([]*peakLane, 0, len(peers))
	for _, p := range peers {
		lanes = append(lanes, &peakLane{peer: p})
	}
	for round := range peakRounds + 1 {
		for _, i := range rand.Perm(len(lanes)) {
			rate, err := lanes[i].peer.rate(ctx)
			if err != nil {
				return nil, err
			}
			if round > 0 { // the first one warms up
				lanes[i].rates = append(lanes[i].rates, rate)
			}
		}
		fmt.Fprintf(progress, "peak: round %d of %d\n", round, peakRounds)
	}
	return lanes, nil
}

// rate is the number of calls a second over one block.
func (p *peer) rate(ctx context.Context) (float64, error) {
	var calls atomic.Int64
	var failure atomic.Pointer[error]
	var group sync.WaitGroup
	load := unary()
	started := time.Now()
	for range peakCallers {
		group.Go(func() {
			done := int64(0)
			for time.Since(started) < peakBlock {
				if err := load.run(ctx, p.client); err != nil {
					failure.Store(&err)
					break
				}
				done++
			}
			calls.Add(done)
		})
	}
	group.Wait()
	if err := failure.Load(); err != nil {
		return 0, fmt.Errorf("peak of %s: %w", p.name, *err)
	}
	return float64(calls.Load()) / time.Since(started).Seconds(), nil
}
