package main

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

const (
	// patience is the deadline of a call: what hangs has failed.
	patience = 10 * time.Second
	// reopenings is how often a caller opens a refused stream again.
	reopenings = 3
)

// load calls the fleet at a steady rate, whatever becomes of the calls: callers
// in the real world do not wait for one another either. What would pile up
// beyond two seconds' worth of calls is not made, and counted.
type load struct {
	client hellov1.GreeterClient
	rate   int
	limit  int64
	tally  *tally
}

func newLoad(client hellov1.GreeterClient, rate int, counts *tally) *load {
	return &load{client: client, rate: rate, limit: int64(max(100, 2*rate)), tally: counts}
}

// run makes calls until ctx ends, waits for the last one to end, and returns
// how many were not made.
func (l *load) run(ctx context.Context) (skipped int) {
	// A call that has begun is finished also when the load ends.
	calls := context.WithoutCancel(ctx)
	var running sync.WaitGroup
	var inFlight atomic.Int64
	began := time.Now()
	for n := 0; ; n++ {
		due := began.Add(time.Duration(n) * time.Second / time.Duration(l.rate))
		if until(ctx, due) != nil {
			break
		}
		if inFlight.Load() >= l.limit {
			skipped++
			continue
		}
		inFlight.Add(1)
		running.Go(func() {
			defer inFlight.Add(-1)
			l.one(calls, shapeOf(n), due)
		})
	}
	running.Wait()
	return skipped
}

// one makes one call, and for streams that cannot move by themselves one more
// when it is refused.
func (l *load) one(ctx context.Context, s shape, due time.Time) {
	r := &record{shape: s}
	ctx, cancel := context.WithTimeout(context.WithValue(ctx, recordKey{}, r), patience)
	defer cancel()
	server, err := s.call(ctx, l.client)
	for try := 0; s.reopens && materpc.KindOf(err) == materpc.ServerRefused && try < reopenings; try++ {
		r.moved.Store(true)
		server, err = s.call(ctx, l.client)
	}
	l.tally.ended(r, server, time.Since(due), err)
}

// record is one call as its caller sees it.
type record struct {
	shape shape
	moved atomic.Bool // to another server, after a refusal
}

type recordKey struct{}
