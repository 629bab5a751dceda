package shield

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Hedge starts further attempts beside a slow one and takes the first outcome
// that the clause does not handle; of failures alone the last. A handled failure
// starts the next attempt at once. Attempts run on goroutines of their own with
// a ctx of their own, which is cancelled when another has won: work that ignores
// its ctx outlives the call. Hedge only what may run twice.
type Hedge struct {
	// Max is how many attempts may follow the first. 0 means 1. With [AtOnce] at
	// most 1,000.
	Max int
	// Delay is the wait from one attempt to the next. 0 means 1 s, [AtOnce] starts
	// all together, [OnFailure] the next only when one has failed.
	Delay time.Duration
	// Budget bounds further attempts over many calls. nil means none.
	Budget *Budget
	// IgnorePushback hedges against the server's wish, see [Pushback].
	IgnorePushback bool
}

const (
	// AtOnce as Hedge.Delay: all attempts start together.
	AtOnce time.Duration = -1
	// OnFailure as Hedge.Delay: time alone starts no attempt.
	OnFailure time.Duration = math.MaxInt64

	defaultHedgeDelay = time.Second
	mostAtOnce        = 1000
)

func (l Hedge) plan(p *planner) {
	h := l
	if h.Max == 0 {
		h.Max = 1
	}
	if h.Delay == 0 {
		h.Delay = defaultHedgeDelay
	}
	faults := len(p.faults)
	if h.Max < 0 {
		p.fault("Hedge", "Max", l.Max, "give 0 for 1, or more; leave the layer out for none")
	}
	if h.Delay == AtOnce && h.Max > mostAtOnce {
		p.fault("Hedge", "Max", l.Max, fmt.Sprintf("give at most %d with AtOnce", mostAtOnce))
	}
	if h.Delay < AtOnce {
		p.fault("Hedge", "Delay", l.Delay, "give 0 for 1s, AtOnce, OnFailure or more than 0")
	}
	if l.Budget != nil && l.Budget.fault != nil {
		p.fault("Hedge", "Budget", l.Budget, l.Budget.fault.Error())
	}
	if len(p.faults) > faults {
		return
	}
	attempts := 0
	if h.Max < math.MaxInt {
		attempts = h.Max + 1
	}
	p.add(node{
		kind: hedgeNode, name: "hedge", text: h.text(), config: l, hedge: &h,
		traits: Traits{MaxAttempts: attempts, Concurrent: attempts != 1, ReplacesContext: true},
	})
}

func (l *Hedge) text() string {
	when := "each " + l.Delay.String()
	switch l.Delay {
	case AtOnce:
		when = "at once"
	case OnFailure:
		when = "on failure"
	}
	text := fmt.Sprintf("Hedge(%d, %s", l.Max, when)
	if l.Budget != nil {
		text += ", budget " + l.Budget.String()
	}
	return text + ")"
}

// finish is how an attempt of a hedge ended.
type finish[R any] struct {
	result R
	wished *Wished
	err    error
	thrown any // of a panic
	extra  bool
}

// race runs the attempts of a hedge.
func race[S, R any](ctx context.Context, n *node, nodes []node, replies bool, state S, fn func(context.Context, S) (R, error)) (R, *Wished, error) {
	h := n.hedge
	all, cancel := context.WithCancel(ctx)
	defer cancel() // the losers
	ends := make(chan finish[R], min(h.Max, 1024)+1)
	r := racer{node: n, ctx: ctx, timer: time.NewTimer(math.MaxInt64)}
	defer r.timer.Stop()
	launch := func() {
		extra := r.launched > 0
		r.started()
		go attempt(all, ends, extra, h, nodes, replies, state, fn) // ends with its work, which cancel asks to end
	}
	var failed finish[R] // the last
	h.Budget.first(1)
	defer h.Budget.first(-1)
	launch()
	for h.Delay == AtOnce && r.mayLaunch() {
		launch()
	}
	for {
		select {
		case e := <-ends:
			if e.thrown != nil {
				panic(e.thrown) //nolint:forbidigo // the work's own, where its caller can see it
			}
			o := Outcome{Err: e.err, wished: e.wished}
			if replies && e.err == nil {
				o.Reply = e.result
			}
			next, over := r.ended(o)
			if over {
				return e.result, e.wished, e.err
			}
			failed = e
			if next {
				launch()
			}
		case <-r.timer.C:
			if r.mayLaunch() {
				launch()
			}
		case <-ctx.Done():
			if failed.err == nil || errors.Is(ctx.Err(), context.Canceled) {
				failed = finish[R]{err: ctx.Err()}
			}
			return failed.result, failed.wished, failed.err
		}
	}
}

// attempt is one attempt of a hedge, on its own goroutine.
func attempt[S, R any](ctx context.Context, ends chan<- finish[R], extra bool, h *Hedge, nodes []node, replies bool, state S, fn func(context.Context, S) (R, error)) {
	e := finish[R]{extra: extra, err: errEndedGoroutine}
	returned := false
	defer func() {
		if !returned {
			e.thrown = recover() // nil for runtime.Goexit
		}
		if extra {
			h.Budget.refund()
		}
		select {
		case ends <- e:
		case <-ctx.Done(): // nobody listens, and the channel may be full
		}
	}()
	e.result, e.wished, e.err = run(ctx, nodes, replies, state, fn)
	returned = true
}

var errEndedGoroutine = errors.New("shield: the work ended its goroutine")

// racer is what a hedge knows of its attempts.
type racer struct {
	node     *node
	ctx      context.Context
	timer    *time.Timer
	launched int
	running  int
	closed   bool  // no further attempt
	failure  error // the last
}

// started notes an attempt and sets the clock for the next.
func (r *racer) started() {
	if r.launched > 0 {
		r.node.observers.emit(Event{Type: Hedging, Shield: r.node.shield, Layer: r.node.text, Attempt: r.launched + 1, Err: r.failure})
	}
	r.launched++
	r.running++
	if d := r.node.hedge.Delay; d > 0 && d != OnFailure {
		r.timer.Reset(d)
	}
}

// mayLaunch takes from the budget what another attempt costs, if it may start.
func (r *racer) mayLaunch() bool {
	if r.closed || r.launched > r.node.hedge.Max || r.ctx.Err() != nil {
		return false
	}
	if !r.node.hedge.Budget.spend() {
		r.closed = true
	}
	return !r.closed
}

// ended notes an outcome: whether to start the next attempt, whether it is the
// call's.
func (r *racer) ended(o Outcome) (next, over bool) {
	r.running--
	h := r.node.hedge
	if !r.node.clause.handles(r.ctx, o) {
		if o.Err == nil {
			h.Budget.succeeded()
		}
		return false, true
	}
	h.Budget.failed()
	r.failure = o.Err
	delay, stop, pushed := o.pushback(h.IgnorePushback)
	r.closed = r.closed || stop
	if pushed && !stop && delay > 0 && !r.closed && r.launched <= h.Max {
		r.timer.Reset(delay)
		return false, false
	}
	if r.mayLaunch() {
		return true, false
	}
	return false, r.running == 0
}
