package shield

import (
	"context"
	"errors"
	"time"
)

// Timeout ends the ctx of the work after a while. It is cooperative: work that
// ignores its ctx goes on, and a success that comes late is still delivered.
// Outside a Retry it bounds all attempts together, inside each of them. A ctx
// that ends earlier anyway costs nothing.
type Timeout struct {
	// After is the bound. 0 means 30 s.
	After time.Duration
}

const defaultTimeout = 30 * time.Second

func (l Timeout) plan(p *planner) {
	after := l.After
	if after == 0 {
		after = defaultTimeout
	}
	if after < 0 {
		p.fault("Timeout", "After", l.After, "give 0 for 30s, or more; leave the layer out for none")
		return
	}
	p.add(node{
		kind: timeoutNode, name: "timeout", text: "Timeout(" + after.String() + ")", config: l,
		timeout: timeoutPlan{after: after, cause: &TimedOut{Shield: p.shield, After: after}},
		traits:  Traits{MaxAttempts: 1, ReplacesContext: true},
	})
}

// timeoutPlan is a compiled Timeout. Its cause is one for all calls: it tells
// this layer's end from others, and costs no allocation.
type timeoutPlan struct {
	after time.Duration
	cause *TimedOut
}

// derive returns the ctx of the work, and nil for cancel when the layer has
// nothing to add to ctx.
func (t timeoutPlan) derive(ctx context.Context) (context.Context, context.CancelFunc) {
	until := time.Now().Add(t.after)
	if deadline, ok := ctx.Deadline(); ok && !until.Before(deadline) {
		return ctx, nil
	}
	return context.WithDeadlineCause(ctx, until, t.cause)
}

// arbitrate says whose end it was: the caller's comes first, then ours, and
// everything else passes.
func (t timeoutPlan) arbitrate(ctx context.Context, n *node, f *frame, err error) error {
	if f.cancel == nil {
		return err
	}
	ours := err != nil && f.above.Err() == nil && errors.Is(ctx.Err(), context.DeadlineExceeded) && context.Cause(ctx) == error(t.cause) //nolint:errorlint // this very layer's
	f.cancel()
	f.cancel = nil
	if !ours {
		return err
	}
	timedOut := &TimedOut{Shield: n.shield, After: t.after, Cause: err}
	n.observers.emit(Event{Type: Expired, Shield: n.shield, Layer: n.text, Delay: t.after, Err: timedOut})
	return timedOut
}
