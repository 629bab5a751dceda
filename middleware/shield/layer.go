package shield

import (
	"context"
	"time"
)

// Layer is one step of a shield: a config struct of this package ([Timeout],
// [Retry], [Breaker], ...), a clause ([On]), another [*Shield], whose state is
// then shared, or a strategy of one's own ([Use]).
type Layer interface {
	// plan adds the layer to a shield under construction, or its faults.
	plan(*planner)
}

// Traits are what a shield, or a layer, may do to the work under it.
type Traits struct {
	// MaxAttempts is how often the work may run; 0 means without a bound.
	MaxAttempts int
	// Concurrent: several runs may be under way at once.
	Concurrent bool
	// Blocks: it may wait before the work runs, or between two runs.
	Blocks bool
	// ReplacesContext: the work gets another ctx than the caller's.
	ReplacesContext bool
	// Stateful: what one call does changes what happens to others.
	Stateful bool
}

// admitter is the state of a layer that decides before the work and learns from
// its end: breaker, rate, concurrency, throttle. It is shared by all calls.
// Values alone go through it, so that nothing of a call escapes to the heap.
type admitter interface {
	// enter admits a call or returns why not (*Rejected, or the ctx's error when
	// it had to wait). now is the call's clock, see monotonic.
	enter(ctx context.Context, now int64) (ticket, error)
	// exit gives back what enter took, exactly once for each admitted call.
	exit(t ticket, end end)
	// state describes the layer now.
	state(now int64) LayerState
	// reset forgets what was learned; isolate refuses everything until reset.
	reset()
}

// ticket is what an admitter wants to see again at exit.
type ticket struct {
	generation uint64
	began      int64 // monotonic
}

// end is how admitted work ended, in the eyes of the layer's clause.
type end struct {
	kind endKind
	now  int64 // monotonic, read once for all layers of a call
}

type endKind uint8

const (
	// succeeded: no error, or none that the clause handles and no cancel.
	succeeded endKind = iota
	// failed: the clause handles it.
	failed
	// ignored: an error that the clause does not handle, the caller's cancel, or
	// a rejection by an inner layer: it says nothing of what is protected.
	ignored
	// panicked counts as failed.
	panicked
)

// monotonic is the clock of all layers, in nanoseconds. In a testing/synctest
// bubble it is the bubble's.
func monotonic() int64 { return int64(time.Since(epoch)) }

// epoch is any moment; only differences count.
var epoch = time.Now() //nolint:gochecknoglobals // never written

// LayerState is what a layer says of itself in a [State].
type LayerState struct {
	// Layer is the layer's own text, as in [Shield.String].
	Layer string `json:"layer"`
	// Kind is "timeout", "retry", "breaker", "rate", "concurrency", "throttle",
	// "hedge", "fallback", "chaos" or "custom".
	Kind string `json:"kind"`
	// Breaker is closed, open, half-open or isolated; empty for other kinds.
	Breaker string `json:"breaker,omitempty"`
	// Note is what [Shield.Isolate] was given.
	Note string `json:"note,omitempty"`
	// RetryAfter is how long the layer will still refuse, if it knows.
	RetryAfter time.Duration `json:"retry_after,omitempty"`
	// Limit, InFlight and Queued belong to limits.
	Limit    int `json:"limit,omitempty"`
	InFlight int `json:"in_flight,omitempty"`
	Queued   int `json:"queued,omitempty"`
	// Tokens are what a rate or a budget has left.
	Tokens float64 `json:"tokens,omitempty"`
	// Calls and Failures are those of a breaker's or throttle's current window.
	Calls    int `json:"calls,omitempty"`
	Failures int `json:"failures,omitempty"`
}
