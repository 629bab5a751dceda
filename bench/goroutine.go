package main

import (
	"context"
	"errors"
	"runtime"
	"sync"
)

// heldCalls is how many calls are in flight while goroutines are counted.
const heldCalls = 200

// countGoroutines returns how many goroutines the peer adds for each unary call
// in flight, both sides together, without the caller's own.
func (p *peer) countGoroutines(ctx context.Context) (float64, error) {
	g := &gate{arrived: make(chan struct{}, heldCalls), open: make(chan struct{})}
	p.service.gate.Store(g)
	defer p.service.gate.Store(nil)

	before := runtime.NumGoroutine()
	errs := make([]error, heldCalls)
	failed := make(chan struct{}, heldCalls)
	var group sync.WaitGroup
	load := unary()
	for i := range heldCalls {
		group.Go(func() {
			if errs[i] = load.run(ctx, p.client); errs[i] != nil {
				failed <- struct{}{}
			}
		})
	}
	arrived := 0
	for arrived < heldCalls {
		select {
		case <-g.arrived:
			arrived++
			continue
		case <-failed:
		}
		break
	}
	added := runtime.NumGoroutine() - before - heldCalls
	close(g.open)
	group.Wait()
	return float64(added) / heldCalls, errors.Join(errs...)
}
