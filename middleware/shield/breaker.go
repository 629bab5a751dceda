package shield

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Breaker stops calling what keeps failing, and tries again later. The ambient
// clause says what a failure is; other errors, the caller's cancel and refusals
// of layers further in move nothing.
//
//	closed ──too many failures──> open ──Open is over──> half-open
//	half-open ──probes succeed──> closed, ──probes fail──> open
//	any ──Isolate──> isolated ──Reset──> closed
//
// Closed, it costs no lock and no allocation. A result counts only in the period
// in which its call was admitted: what began before a trip moves nothing after
// it. A probe that never returns keeps the breaker half-open, so have a [Timeout]
// further in.
type Breaker struct {
	// Failures is how many failures in a row open it. 0 means 5, or, with Ratio,
	// that the ratio alone decides. Give one of the two.
	Failures int
	// Ratio is the share of failures, over 0 to 1, that opens it, measured over
	// Window once that holds MinCalls. A success never opens it.
	Ratio float64
	// MinCalls is how many calls the window must hold for Ratio and SlowRatio to
	// mean anything. 0 means 10.
	MinCalls int
	// Window is how far back the ratios look, in ten buckets. 0 means 30 s, the
	// least is 10 ms.
	Window time.Duration
	// Open is how long it stays open. 0 means 15 s.
	Open time.Duration
	// OpenBackoff gives how long it stays open instead of Open: Try.Retry is the
	// number of trips in a row, 1 at first, Try.Previous the time before.
	OpenBackoff Backoff
	// Probes is how many calls the half-open breaker admits to judge by; it waits
	// for all of them. With Failures the first that fails opens it again, with
	// ratios they decide at the end. 0 means 1.
	Probes int
	// SlowAfter is what a call must take longer than to be slow, whatever its
	// result, which stays as it is. 0 means that none is.
	SlowAfter time.Duration
	// SlowRatio is the share of slow calls that opens it, like Ratio. 0 means that
	// a slow success counts as one failure in Ratio.
	SlowRatio float64
}

const (
	defaultFailures = 5
	defaultMinCalls = 10
	defaultWindow   = 30 * time.Second
	defaultOpen     = 15 * time.Second
)

func (l Breaker) plan(p *planner) {
	fault := func(bad bool, field string, value any, remedy string) {
		if bad {
			p.fault("Breaker", field, value, remedy)
		}
	}
	ratios := l.Ratio != 0 || l.SlowRatio != 0
	fault(l.Failures < 0, "Failures", l.Failures, "give 0 for 5, or more")
	fault(l.Failures > 0 && l.Ratio != 0, "Failures", l.Failures, "leave out Failures or Ratio: one of them decides")
	fault(!isShare(l.Ratio), "Ratio", l.Ratio, "give a share over 0, up to 1, or 0 for none")
	fault(l.MinCalls < 0, "MinCalls", l.MinCalls, "give 0 for 10, or more")
	fault(l.MinCalls > 0 && !ratios, "MinCalls", l.MinCalls, "leave it out, or give Ratio or SlowRatio, which it is for")
	fault(l.Window != 0 && l.Window < minWindow, "Window", l.Window, "give 0 for 30s, or 10ms or more")
	fault(l.Window > 0 && !ratios, "Window", l.Window, "leave it out, or give Ratio or SlowRatio, which it is for")
	fault(l.Open < 0, "Open", l.Open, "give 0 for 15s, or more")
	fault(l.Open > 0 && l.OpenBackoff != nil, "Open", l.Open, "leave out Open or OpenBackoff: one of them decides")
	if c, ok := l.OpenBackoff.(Curve); ok {
		if field, value, remedy := c.faults(); field != "" {
			p.fault("Breaker", "Open"+field, value, remedy)
		}
	}
	fault(l.Probes < 0, "Probes", l.Probes, "give 0 for 1, or more")
	fault(l.SlowAfter < 0, "SlowAfter", l.SlowAfter, "give 0 for none, or more")
	fault(l.SlowAfter > 0 && !ratios, "SlowAfter", l.SlowAfter, "give SlowRatio, or Ratio, in which slow calls then count")
	fault(!isShare(l.SlowRatio), "SlowRatio", l.SlowRatio, "give a share over 0, up to 1, or 0 for none")
	fault(l.SlowRatio != 0 && l.SlowAfter == 0, "SlowRatio", l.SlowRatio, "give SlowAfter, which says what slow is")
	p.admit(l, "breaker", l.String(), false, func() admitter { return newBreaker(l) })
}

// isShare reports whether f is in [0, 1]; no number is not.
func isShare(f float64) bool { return f >= 0 && f <= 1 }

func (l Breaker) withDefaults() Breaker {
	if l.Failures == 0 && l.Ratio == 0 {
		l.Failures = defaultFailures
	}
	l.MinCalls = orDefault(l.MinCalls, defaultMinCalls)
	l.Window = orDefault(l.Window, defaultWindow)
	l.Open = orDefault(l.Open, defaultOpen)
	l.Probes = orDefault(l.Probes, 1)
	return l
}

// orDefault returns d for zero.
func orDefault[T int | time.Duration | float64](v, d T) T {
	if v == 0 {
		return d
	}
	return v
}

// String describes the layer with its defaults.
func (l Breaker) String() string {
	l = l.withDefaults()
	text := fmt.Sprintf("Breaker(%d consecutive", l.Failures)
	if l.Ratio > 0 {
		text = fmt.Sprintf("Breaker(%v%% of %d+ in %v", percent(l.Ratio), l.MinCalls, l.Window)
	}
	if l.SlowAfter > 0 {
		text += fmt.Sprintf(", slow over %v", l.SlowAfter)
	}
	if l.SlowRatio > 0 {
		text += fmt.Sprintf(" %v%%", percent(l.SlowRatio))
		if l.Ratio == 0 {
			text += fmt.Sprintf(" of %d+ in %v", l.MinCalls, l.Window)
		}
	}
	if l.OpenBackoff != nil {
		text += fmt.Sprintf(", open %v", l.OpenBackoff)
	} else {
		text += fmt.Sprintf(", open %v", l.Open)
	}
	if l.Probes > 1 {
		text += fmt.Sprintf(", %d probes", l.Probes)
	}
	return text + ")"
}

// percent is a share as people read it, to a hundredth.
func percent(share float64) float64 { return math.Round(share*1e4) / 1e2 }

// breakerState is the state of a Breaker: the current phase, which results find
// in one load. A phase is replaced, never changed into another, so that a late
// result writes at most into one that nobody reads any more.
type breakerState struct {
	transitions
	config Breaker
	phase  atomic.Pointer[phase]
	mu     sync.Mutex // held to replace the phase, and for the cohort
}

type phase struct {
	generation uint64
	mode       mode
	trips      int           // in a row
	lasts      time.Duration // of the last of these trips
	until      int64         // open: its end, monotonic
	failures   atomic.Int64  // closed: in a row
	window     *window       // closed, with ratios
	admitted   int           // half-open: probes that are out or have ended
	ended      tally         // half-open: how they ended
	note       string        // isolated: why
}

type mode uint8

const (
	closed mode = iota
	open
	halfOpen
	isolated
)

func (m mode) String() string {
	return [...]string{"closed", "open", "half-open", "isolated"}[m]
}

func newBreaker(config Breaker) *breakerState {
	b := &breakerState{config: config.withDefaults()}
	b.phase.Store(b.closedPhase())
	return b
}

func (b *breakerState) closedPhase() *phase {
	p := &phase{mode: closed}
	if b.config.Ratio > 0 || b.config.SlowRatio > 0 {
		p.window = newWindow(b.config.Window)
	}
	return p
}

func (b *breakerState) enter(_ context.Context, now int64) (ticket, error) {
	if p := b.phase.Load(); p.mode == closed {
		return ticket{generation: p.generation, began: now}, nil
	}
	return b.probe(now)
}

// probe admits a call through a breaker that is not closed, if it is due.
func (b *breakerState) probe(now int64) (ticket, error) {
	b.mu.Lock()
	p := b.phase.Load()
	if p.mode == open && now >= p.until {
		p = b.become(&phase{mode: halfOpen, trips: p.trips, lasts: p.lasts})
		defer b.tell()
	}
	defer b.mu.Unlock()
	switch p.mode {
	case isolated:
		return ticket{}, &Rejected{Reason: Isolated, Note: p.note}
	case open:
		return ticket{}, &Rejected{Reason: BreakerOpen, RetryAfter: time.Duration(p.until - now)}
	case halfOpen:
		if p.admitted >= b.config.Probes {
			return ticket{}, &Rejected{Reason: BreakerOpen}
		}
		p.admitted++
	}
	return ticket{generation: p.generation, began: now}, nil
}

func (b *breakerState) exit(t ticket, e end) {
	p := b.phase.Load()
	switch {
	case p.generation != t.generation: // from before
	case p.mode == halfOpen:
		b.judge(p, t, e)
	case e.kind != ignored:
		b.count(p, t, e)
	}
}

// bad reports what a result is to the ratios. A call that is slow and failed is
// one failure.
func (b *breakerState) bad(t ticket, e end) (failure, slow bool) {
	failure = e.kind == failed || e.kind == panicked
	slow = b.config.SlowAfter > 0 && e.now-t.began > int64(b.config.SlowAfter)
	if b.config.SlowRatio == 0 {
		return failure || slow, false
	}
	return failure, slow
}

// count notes a result of the closed breaker.
func (b *breakerState) count(p *phase, t ticket, e end) {
	failure, slow := b.bad(t, e)
	if p.window != nil {
		p.window.add(e.now, failure, slow)
	}
	trip := false
	if b.config.Failures > 0 {
		switch {
		case failure:
			trip = p.failures.Add(1) >= int64(b.config.Failures)
		case p.failures.Load() != 0: // a store only when needed: it is a shared line
			p.failures.Store(0)
		}
	}
	if !trip && p.window != nil && (failure || slow) {
		sum := p.window.sum(e.now)
		trip = sum.calls >= b.config.MinCalls && b.tooMany(sum)
	}
	if trip {
		b.trip(p, e.now)
	}
}

// tooMany compares quotients: 7/100 is the number that 0.07 is, 0.07*100 is not 7.
func (b *breakerState) tooMany(t tally) bool {
	share := func(n int) float64 { return float64(n) / float64(t.calls) }
	return b.config.Ratio > 0 && share(t.failures) >= b.config.Ratio ||
		b.config.SlowRatio > 0 && share(t.slow) >= b.config.SlowRatio
}

// judge notes the result of a probe. One that says nothing makes room for
// another.
func (b *breakerState) judge(p *phase, t ticket, e end) {
	failure, slow := b.bad(t, e)
	b.mu.Lock()
	if b.phase.Load() != p { // decided meanwhile
		b.mu.Unlock()
		return
	}
	if e.kind == ignored {
		p.admitted--
		b.mu.Unlock()
		return
	}
	p.ended.calls++
	p.ended.failures += number(failure)
	p.ended.slow += number(slow)
	last := p.ended.calls >= b.config.Probes
	switch {
	case failure && b.config.Failures > 0, last && b.tooMany(p.ended):
		b.mu.Unlock()
		b.trip(p, e.now)
		return
	case last:
		b.become(b.closedPhase())
	}
	b.mu.Unlock()
	b.tell()
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

// trip opens the breaker, unless the phase is over. The backoff is asked without
// a lock, since it may be anybody's; of several at once, one counts.
func (b *breakerState) trip(p *phase, now int64) {
	next := &phase{mode: open, trips: p.trips + 1}
	next.lasts = b.lasts(Try{Retry: next.trips, Previous: p.lasts})
	next.until = later(now, next.lasts)
	b.mu.Lock()
	if b.phase.Load() == p {
		b.become(next)
	}
	b.mu.Unlock()
	b.tell()
}

func (b *breakerState) lasts(t Try) (d time.Duration) {
	if b.config.OpenBackoff == nil {
		return b.config.Open
	}
	defer func() {
		if recover() != nil || d < 0 {
			d = b.config.Open // a broken backoff must not break the call
		}
	}()
	return b.config.OpenBackoff.Delay(t)
}

// become replaces the phase. The caller holds mu, and calls tell without it.
func (b *breakerState) become(next *phase) *phase {
	old := b.phase.Load()
	next.generation = old.generation + 1
	b.phase.Store(next)
	if next.mode != old.mode {
		b.add(old.mode.String(), next.mode.String())
	}
	return next
}

func (b *breakerState) reset() { b.replace(b.closedPhase()) }

// isolate refuses all calls until reset.
func (b *breakerState) isolate(note string) { b.replace(&phase{mode: isolated, note: note}) }

func (b *breakerState) replace(next *phase) {
	b.mu.Lock()
	b.become(next)
	b.mu.Unlock()
	b.tell()
}

// state says half-open as soon as the open period is over, although the breaker
// itself moves with the next call.
func (b *breakerState) state(now int64) LayerState {
	b.mu.Lock()
	defer b.mu.Unlock()
	p := b.phase.Load()
	s := LayerState{Breaker: p.mode.String(), Note: p.note}
	switch p.mode {
	case closed:
		s.Failures = int(p.failures.Load())
		if p.window != nil {
			sum := p.window.sum(now)
			s.Calls, s.Failures = sum.calls, max(sum.failures, s.Failures)
		}
	case open:
		if now >= p.until {
			s.Breaker = halfOpen.String()
		} else {
			s.RetryAfter = time.Duration(p.until - now)
		}
	case halfOpen:
		s.Calls, s.Failures = p.ended.calls, p.ended.failures
	case isolated:
	}
	return s
}
