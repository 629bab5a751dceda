package shield

import (
	"context"
	"errors"
	"fmt"
	"math"
	"time"
)

// Retry runs the work again while its outcome is one that the clause handles.
// The last failure is the result, as it is. No retry starts when the caller has
// gone, or when the wait would outlast the caller's deadline.
type Retry struct {
	// Max is how many retries follow the first attempt. 0 means 3, [None] none,
	// [Forever] no bound.
	Max int
	// Backoff says how long to wait before each. nil means
	// Exponential(250ms), which is doubled up to 30 s, with equal jitter.
	Backoff Backoff
	// MaxDelay bounds each wait, the server's wish included. 0 means the bound of
	// the Backoff, 30 s for one's own.
	MaxDelay time.Duration
	// Floor is the time that an attempt must have left to be worth starting.
	// 0 means 1 ms.
	Floor time.Duration
	// MaxDuration bounds the time from the first attempt to the start of the
	// last. 0 means none.
	MaxDuration time.Duration
	// Budget bounds retries over many calls. nil means none.
	Budget *Budget
	// IgnorePushback retries against the server's wish, see [Pushback].
	IgnorePushback bool
}

const (
	// None as Retry.Max: no retry.
	None = -1
	// Forever as Retry.Max: as long as the caller waits.
	Forever = math.MaxInt

	defaultRetries = 3
	defaultBase    = 250 * time.Millisecond
	defaultFloor   = time.Millisecond
)

func (l Retry) plan(p *planner) {
	r := l
	if r.Max == 0 {
		r.Max = defaultRetries
	}
	if r.Backoff == nil {
		r.Backoff = Exponential(defaultBase)
	}
	if r.Floor == 0 {
		r.Floor = defaultFloor
	}
	if r.MaxDelay == 0 {
		r.MaxDelay = defaultMaxDelay
		if c, ok := r.Backoff.(Curve); ok {
			r.MaxDelay = c.limit()
			if c.Jitter == EqualJitter {
				r.MaxDelay += r.MaxDelay / 2
			}
		}
	}
	if !l.check(p, &r) {
		return
	}
	attempts := 0
	if r.Max != Forever {
		attempts = max(r.Max, 0) + 1
	}
	p.add(node{
		kind: retryNode, name: "retry", text: r.text(), config: l, retry: &r,
		traits: Traits{MaxAttempts: attempts, Blocks: attempts != 1},
	})
}

func (l Retry) check(p *planner, r *Retry) bool {
	faults := len(p.faults)
	if l.Max < None {
		p.fault("Retry", "Max", l.Max, "give 0 for 3, None, Forever or more than 0")
	}
	for _, d := range []struct {
		field string
		value time.Duration
	}{{"MaxDelay", l.MaxDelay}, {"Floor", l.Floor}, {"MaxDuration", l.MaxDuration}} {
		if d.value < 0 {
			p.fault("Retry", d.field, d.value, "give 0 for the default, or more")
		}
	}
	if c, ok := r.Backoff.(Curve); ok {
		if field, value, remedy := c.faults(); field != "" {
			p.fault("Retry", field, value, remedy)
		}
	}
	if l.Budget != nil && l.Budget.fault != nil {
		p.fault("Retry", "Budget", l.Budget, l.Budget.fault.Error())
	}
	return len(p.faults) == faults
}

func (l *Retry) text() string {
	most := fmt.Sprint(max(l.Max, 0))
	if l.Max == Forever {
		most = "forever"
	}
	text := "Retry(" + most + ", " + l.Backoff.String()
	if l.MaxDuration > 0 {
		text += ", within " + l.MaxDuration.String()
	}
	if l.Budget != nil {
		text += ", budget " + l.Budget.String()
	}
	return text + ")"
}

// retries is what a call remembers of a Retry layer.
type retries struct {
	count int           // retries begun
	delay time.Duration // before the last
	began int64         // of the first attempt, monotonic; only with a MaxDuration
	extra bool          // the budget pays for an attempt
}

// open begins the attempts of a call.
func (l *Retry) open(f *frame) {
	f.retry = retries{}
	if l.MaxDuration > 0 {
		f.retry.began = monotonic()
	}
	l.Budget.first(1)
}

// again decides about another attempt, and waits for it. Otherwise o is the
// result.
func (l *Retry) again(n *node, f *frame, o *Outcome) bool {
	ctx := f.above
	handled := n.clause.handles(ctx, *o)
	l.refund(f)
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		handled = false
		if o.Err != nil {
			o.Err = ctx.Err() // whatever the work made of it
		}
	case handled:
		l.Budget.failed()
	case o.Err == nil:
		l.Budget.succeeded()
	}
	if handled && l.wait(ctx, n, f, o) {
		return true
	}
	l.close(f)
	return false
}

// wait sleeps until the next attempt is due, or says that there is none.
func (l *Retry) wait(ctx context.Context, n *node, f *frame, o *Outcome) bool {
	giveUp := func() bool {
		n.observers.emit(Event{Type: GaveUp, Shield: n.shield, Layer: n.text, Attempt: f.retry.count + 1, Err: o.Err})
		return false
	}
	if f.retry.count >= l.Max || ctx.Err() != nil {
		return giveUp()
	}
	next := Try{Retry: f.retry.count + 1, Previous: f.retry.delay, Outcome: *o}
	delay, ok := l.delay(next)
	if !ok || !l.fits(ctx, f, delay) || !l.Budget.spend() {
		return giveUp()
	}
	f.retry.count, f.retry.delay, f.retry.extra = next.Retry, delay, true
	n.observers.emit(Event{Type: Retrying, Shield: n.shield, Layer: n.text, Attempt: next.Retry + 1, Delay: delay, Err: o.Err})
	if sleep(ctx, delay) == nil {
		return true
	}
	if errors.Is(ctx.Err(), context.Canceled) {
		o.Err = ctx.Err()
	}
	return false
}

// delay is the server's wish, or the backoff. False: the server wants no more.
func (l *Retry) delay(next Try) (time.Duration, bool) {
	delay, stop, ok := next.Outcome.pushback(l.IgnorePushback)
	if stop {
		return 0, false
	}
	if !ok {
		delay = l.Backoff.Delay(next)
	}
	return min(max(delay, 0), l.MaxDelay), true
}

// fits reports whether an attempt after delay is worth starting.
func (l *Retry) fits(ctx context.Context, f *frame, delay time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < saturatedSum(delay, l.Floor) {
		return false
	}
	return l.MaxDuration == 0 || monotonic()-f.retry.began <= int64(l.MaxDuration)-int64(delay)
}

func saturatedSum(a, b time.Duration) time.Duration {
	if sum := a + b; sum >= a {
		return sum
	}
	return math.MaxInt64
}

// refund ends the attempt that the budget pays for, if one is out.
func (l *Retry) refund(f *frame) {
	if f.retry.extra {
		f.retry.extra = false
		l.Budget.refund()
	}
}

// close is the end of a call, also of one that panicked.
func (l *Retry) close(f *frame) {
	l.refund(f)
	l.Budget.first(-1)
}

// sleep waits for d, or returns the ctx's error.
func sleep(ctx context.Context, d time.Duration) error {
	if d <= 0 {
		return ctx.Err()
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return ctx.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
