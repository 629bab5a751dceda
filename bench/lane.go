package main

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// lane is one peer under one workload. Its blocks are compared with those of
// its base, round by round.
type lane struct {
	name    string
	peer    *peer
	base    *lane // nil for a base
	control bool  // the base once more
	budget  bool  // ours: the budgets apply
	blocks  []block
}

// block is what one block of operations cost, per operation.
type block struct {
	cpu    float64 // microseconds
	allocs float64
	bytes  float64
}

// suite is a workload and its lanes, which share rounds.
type suite struct {
	load  workload
	lanes []*lane
}

// suites lists what is measured, each with the peers that differ in it.
func suites(peers []*peer) []suite {
	streams := []string{nameRaw, nameUntimed, nameOurs, nameDiscovery} // Kratos's timeouts are for unary calls
	return []suite{
		newSuite(unary(), peers, []string{nameRaw, nameHeader, nameKratos, nameUntimed, nameOurs, nameDiscovery}),
		newSuite(unaryDeadline(), peers, []string{nameRaw, nameHeader, nameUntimed, nameOurs, nameDiscovery}),
		newSuite(pingPong(), peers, streams),
		newSuite(download(), peers, streams),
	}
}

func newSuite(load workload, peers []*peer, names []string) suite {
	byName := make(map[string]*peer, len(peers))
	for _, p := range peers {
		byName[p.name] = p
	}
	base := &lane{name: nameSame, peer: byName[nameSame]}
	s := suite{load, []*lane{base, {name: nameSame + ", again (control)", peer: base.peer, base: base, control: true}}}
	for _, name := range names {
		s.lanes = append(s.lanes, &lane{name: name, peer: byName[name], base: base, budget: ours(name)})
	}
	return s
}

// measure runs one block and keeps what it cost. Reading the memory statistics
// stops the world, so it stays outside the CPU measurement.
func (l *lane) measure(ctx context.Context, load workload, operations, callers int) error {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	started, err := processCPU()
	if err != nil {
		return err
	}
	if err := l.peer.repeat(ctx, load, operations, callers); err != nil {
		return err
	}
	ended, err := processCPU()
	if err != nil {
		return err
	}
	runtime.ReadMemStats(&after)
	n := float64(operations)
	l.blocks = append(l.blocks, block{
		cpu:    float64(ended-started) / float64(time.Microsecond) / n,
		allocs: float64(after.Mallocs-before.Mallocs) / n,
		bytes:  float64(after.TotalAlloc-before.TotalAlloc) / n,
	})
	return nil
}

// repeat runs operations on all callers at once.
func (p *peer) repeat(ctx context.Context, load workload, operations, callers int) error {
	errs := make([]error, callers)
	var group sync.WaitGroup
	for i := range callers {
		share := operations / callers
		if i < operations%callers {
			share++
		}
		group.Go(func() {
			for range share {
				if errs[i] = load.run(ctx, p.client); errs[i] != nil {
					return
				}
			}
		})
	}
	group.Wait()
	if err := errors.Join(errs...); err != nil {
		return fmt.Errorf("%s on %s: %w", load.name, p.name, err)
	}
	return nil
}

// ratios are the lane's CPU to its base's, a value a round.
func (l *lane) ratios() []float64 {
	out := make([]float64, 0, len(l.blocks))
	for i, b := range l.blocks {
		out = append(out, b.cpu/l.base.blocks[i].cpu)
	}
	return out
}

// of returns one number of all blocks.
func (l *lane) of(number func(block) float64) []float64 {
	out := make([]float64, 0, len(l.blocks))
	for _, b := range l.blocks {
		out = append(out, number(b))
	}
	return out
}
