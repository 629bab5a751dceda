package shield

import (
	"context"
	"fmt"
	"math"
	"math/bits"
	"sync"
	"sync/atomic"
	"time"
)

// Rate bounds how many calls start over time: a token bucket, kept as the one
// number of the generic cell rate algorithm (ITU-T I.371), which costs one
// compare-and-swap. A token is spent when the call is admitted and does not come
// back, however the call ends.
type Rate struct {
	// Permits is how many calls may start in Per. 0 means 100.
	Permits int
	// Per is the time for Permits. 0 means 1 s.
	Per time.Duration
	// Burst is how many may start at once after a quiet time. 0 means Permits.
	Burst int
	// Wait is how long a call may wait for its token, in order of arrival. 0 means
	// not at all. A call that would wait longer is refused at once, and so is one
	// whose ctx has its deadline before that; its error matches [Rejected] and
	// context.DeadlineExceeded. A call whose ctx ends while it waits leaves its
	// token to those behind it, and returns the ctx's error.
	Wait time.Duration
}

const defaultPermits = 100

func (l Rate) plan(p *planner) {
	fault := func(bad bool, field string, value any, remedy string) {
		if bad {
			p.fault("Rate", field, value, remedy)
		}
	}
	fault(l.Permits < 0, "Permits", l.Permits, "give 0 for 100, or more")
	fault(l.Per < 0, "Per", l.Per, "give 0 for 1s, or more")
	fault(l.Burst < 0, "Burst", l.Burst, "give 0 for as many as Permits, or more")
	fault(l.Wait < 0, "Wait", l.Wait, "give 0 to refuse at once, or more")
	p.admit(l, "rate", l.String(), l.Wait > 0, func() admitter { return newRate(l) })
}

func (l Rate) withDefaults() Rate {
	l.Permits = orDefault(l.Permits, defaultPermits)
	l.Per = orDefault(l.Per, time.Second)
	l.Burst = orDefault(l.Burst, l.Permits)
	return l
}

// String describes the layer with its defaults.
func (l Rate) String() string {
	l = l.withDefaults()
	text := fmt.Sprintf("Rate(%d/%v, burst %d", l.Permits, l.Per, l.Burst)
	if l.Wait > 0 {
		text += fmt.Sprintf(", wait %v", l.Wait)
	}
	return text + ")"
}

// hopeless is the refusal of a call whose deadline comes before its token.
type hopeless struct{ *Rejected }

func (e hopeless) Error() string { return e.Rejected.Error() + ", after the deadline of the call" }

func (e hopeless) Unwrap() []error { return []error{e.Rejected, context.DeadlineExceeded} }

// rateState counts time in units, whole nanoseconds or parts of them, and keeps
// the theoretical arrival time: when the bucket will be full again. Each token
// moves it on by interval, and it is at most burst ahead of now, or, with those
// who wait, burst and wait.
type rateState struct {
	config   Rate
	scale    int64 // units in a nanosecond
	interval int64 // between tokens
	burst    int64 // the time in which an empty bucket fills
	arrival  atomic.Int64

	waiting atomic.Int64 // the line's length, to be read without mu
	mu      sync.Mutex
	line    line
	timer   *time.Timer
}

const (
	// fine units are for intervals that nanoseconds do not tell apart well.
	fineScale = 8
	coarse    = 1000 // ns
	// farUnits bounds intervals, bursts and waits, so that no sum overflows: it is 4.5
	// years in fine units, and 8 times as much in nanoseconds.
	farUnits = 1 << 57 * fineScale
	// full is the arrival of a bucket that is full at any time.
	full = math.MinInt64
)

func newRate(config Rate) *rateState {
	r := &rateState{config: config.withDefaults(), scale: 1}
	permits, per := uint64(r.config.Permits), uint64(r.config.Per)
	if per/permits < coarse {
		r.scale = fineScale
	}
	r.config.Wait = min(r.config.Wait, time.Duration(farUnits/r.scale))
	// Rounded up: never more than Permits.
	high, low := bits.Mul64(per, uint64(r.scale))
	low, carry := bits.Add64(low, permits-1, 0)
	r.interval = quotient(high+carry, low, permits)
	high, low = bits.Mul64(uint64(r.interval), uint64(r.config.Burst))
	r.burst = max(quotient(high, low, 1), r.interval)
	r.arrival.Store(full)
	return r
}

// quotient divides what may be larger than a word, and saturates.
func quotient(high, low, by uint64) int64 {
	if high >= by {
		return farUnits
	}
	q, _ := bits.Div64(high, low, by)
	return int64(min(q, farUnits))
}

func (r *rateState) enter(ctx context.Context, now int64) (ticket, error) {
	if err := ctx.Err(); err != nil {
		return ticket{}, err // a token is not for those who have gone
	}
	if r.waiting.Load() == 0 && r.take(now*r.scale) == 0 {
		return ticket{began: now}, nil
	}
	if r.config.Wait > 0 {
		return r.wait(ctx)
	}
	// The call may have been under way for a while: what counts is now.
	late := r.take(monotonic() * r.scale)
	if late == 0 {
		return ticket{began: now}, nil
	}
	return ticket{}, r.refusal(late)
}

// exit does nothing: a token is spent.
func (r *rateState) exit(ticket, end) {}

// take takes a token, or returns how long it will be until there is one.
func (r *rateState) take(now int64) (late int64) {
	for {
		arrival := r.arrival.Load()
		next := max(arrival, now) + r.interval
		if late := next - now - r.burst; late > 0 {
			return late
		}
		if r.arrival.CompareAndSwap(arrival, next) {
			return 0
		}
	}
}

func (r *rateState) refusal(late int64) *Rejected {
	return &Rejected{Reason: RateLimited, RetryAfter: r.duration(late)}
}

// duration rounds up: nobody comes too early.
func (r *rateState) duration(units int64) time.Duration {
	return time.Duration((units + r.scale - 1) / r.scale)
}

// wait reserves a token to come and sleeps until it is there.
func (r *rateState) wait(ctx context.Context) (ticket, error) {
	w, err := r.reserve(ctx)
	if err != nil {
		return ticket{}, err
	}
	if w != nil {
		select {
		case <-w.ready:
		case <-ctx.Done():
		}
		if err := ctx.Err(); err != nil {
			r.giveBack(w)
			return ticket{}, err
		}
	}
	return ticket{began: monotonic()}, nil
}

// reserve returns the waiter for a token to come, nil for one that is there.
func (r *rateState) reserve(ctx context.Context) (*waiter, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := monotonic() * r.scale
	r.serve(now)
	for {
		arrival := r.arrival.Load()
		next := max(arrival, now) + r.interval
		late := next - now - r.burst
		if late > 0 {
			d := r.duration(late)
			if d > r.config.Wait {
				return nil, r.refusal(late)
			}
			if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
				return nil, hopeless{r.refusal(late)}
			}
		}
		if !r.arrival.CompareAndSwap(arrival, next) {
			continue
		}
		if late <= 0 {
			return nil, nil
		}
		w := &waiter{ready: make(chan struct{})}
		r.line.push(w)
		r.waiting.Add(1)
		if r.line.length == 1 {
			r.schedule(now)
		}
		return w, nil
	}
}

// due is when the first in the line gets its token. All of the line have theirs
// in arrival already, the last one the last.
func (r *rateState) due() int64 {
	return r.arrival.Load() - r.burst - int64(r.line.length-1)*r.interval
}

// serve wakes those whose token is there. The caller holds mu.
func (r *rateState) serve(now int64) {
	for r.line.length > 0 && r.due() <= now {
		r.pop(r.line.first).decide(granted)
	}
}

func (r *rateState) pop(w *waiter) *waiter {
	r.line.remove(w)
	r.waiting.Add(-1)
	return w
}

// schedule sets the clock for the first in the line. The caller holds mu.
func (r *rateState) schedule(now int64) {
	if r.timer != nil {
		r.timer.Stop()
		r.timer = nil
	}
	if r.line.length > 0 {
		r.timer = time.AfterFunc(r.duration(max(r.due()-now, 0)), r.tick)
	}
}

func (r *rateState) tick() {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := monotonic() * r.scale
	r.serve(now)
	r.schedule(now)
}

// giveBack returns the token of a call that has gone, also one that was granted
// at that moment: those behind move up.
func (r *rateState) giveBack(w *waiter) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if w.fate == undecided {
		r.pop(w)
	}
	for {
		arrival := r.arrival.Load()
		if arrival == full || r.arrival.CompareAndSwap(arrival, arrival-r.interval) {
			break
		}
	}
	now := monotonic() * r.scale
	r.serve(now)
	r.schedule(now)
}

// reset fills the bucket and lets those go who wait.
func (r *rateState) reset() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.arrival.Store(full)
	for r.line.length > 0 {
		r.pop(r.line.first).decide(granted)
	}
	r.schedule(0)
}

func (r *rateState) state(now int64) LayerState {
	now *= r.scale
	used := max(r.arrival.Load(), now) - now
	s := LayerState{Limit: r.config.Permits, Queued: int(r.waiting.Load())}
	s.Tokens = max(0, float64(r.burst-used)/float64(r.interval))
	if late := used + r.interval - r.burst; late > 0 {
		s.RetryAfter = r.duration(late)
	}
	return s
}
