package shield

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// Throttle turns calls away by chance while many of them fail, the more the more
// fail, so that a caller adapts to what the callee can take: client-side
// throttling as in Google's "Site Reliability Engineering", chapter 21, with
// P(refuse) = max(0, (calls - K*accepted) / (calls + 1)). The ambient clause says
// what a failure is.
//
// Its own refusals are no calls in this sum. So it opens again as fast as what it
// still lets through succeeds.
type Throttle struct {
	// K is how many calls it lets through for each accepted one, 1 or more: lower
	// throttles earlier. 0 means 1/0.6.
	K float64
	// Window is how far back it looks, in ten buckets. 0 means 3 s, the least is
	// 10 ms.
	Window time.Duration
	// MinCalls is how many calls the window must hold. 0 means 20.
	MinCalls int
	// MaxReject bounds the chance to refuse, over 0 to 1: the rest goes through
	// and finds out. 0 means 0.9.
	MaxReject float64
}

const (
	defaultK         = 1 / 0.6
	defaultThrottled = 3 * time.Second
	defaultObserved  = 20
	defaultMaxReject = 0.9
)

func (l Throttle) plan(p *planner) {
	fault := func(bad bool, field string, value any, remedy string) {
		if bad {
			p.fault("Throttle", field, value, remedy)
		}
	}
	fault(l.K != 0 && !(l.K >= 1 && l.K <= math.MaxFloat64), "K", l.K, "give 0 for 1/0.6, or 1 or more")
	fault(l.Window != 0 && l.Window < minWindow, "Window", l.Window, "give 0 for 3s, or 10ms or more")
	fault(l.MinCalls < 0, "MinCalls", l.MinCalls, "give 0 for 20, or more")
	fault(!isShare(l.MaxReject), "MaxReject", l.MaxReject, "give 0 for 0.9, or up to 1")
	p.admit(l, "throttle", l.String(), false, func() admitter { return newThrottle(l, rand.Uint64()) })
}

func (l Throttle) withDefaults() Throttle {
	l.K = orDefault(l.K, defaultK)
	l.Window = orDefault(l.Window, defaultThrottled)
	l.MinCalls = orDefault(l.MinCalls, defaultObserved)
	l.MaxReject = orDefault(l.MaxReject, defaultMaxReject)
	return l
}

// String describes the layer with its defaults.
func (l Throttle) String() string {
	l = l.withDefaults()
	return fmt.Sprintf("Throttle(K %.3g of %d+ in %v, <=%v%%)", l.K, l.MinCalls, l.Window, percent(l.MaxReject))
}

type throttleState struct {
	config Throttle
	window atomic.Pointer[window]
	failed atomic.Int64 // up to when a failure may be in the window, monotonic

	mu   sync.Mutex
	dice *rand.PCG
}

func newThrottle(config Throttle, seed uint64) *throttleState {
	t := &throttleState{config: config.withDefaults(), dice: rand.NewPCG(seed, seed)}
	t.reset()
	return t
}

func (t *throttleState) enter(_ context.Context, now int64) (ticket, error) {
	// While all is well one load is all.
	if now < t.failed.Load() {
		if share := t.refuses(now); share > 0 && t.roll() < share {
			return ticket{}, &Rejected{Reason: Throttled}
		}
	}
	return ticket{began: now}, nil
}

// refuses returns the share of calls to refuse.
func (t *throttleState) refuses(now int64) float64 {
	sum := t.window.Load().sum(now)
	if sum.calls < t.config.MinCalls {
		return 0
	}
	calls, accepted := float64(sum.calls), float64(sum.calls-sum.failures)
	return min((calls-t.config.K*accepted)/(calls+1), t.config.MaxReject)
}

// roll returns a random number in [0, 1).
func (t *throttleState) roll() float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return float64(t.dice.Uint64()>>11) / (1 << 53)
}

func (t *throttleState) exit(_ ticket, e end) {
	if e.kind == ignored {
		return
	}
	failure := e.kind != succeeded
	w := t.window.Load()
	w.add(e.now, failure, false)
	if failure {
		// In the window for its length at most.
		t.failed.Store(later(e.now, t.config.Window))
	}
}

func (t *throttleState) reset() {
	t.window.Store(newWindow(t.config.Window))
	t.failed.Store(math.MinInt64)
}

func (t *throttleState) state(now int64) LayerState {
	sum := t.window.Load().sum(now)
	return LayerState{Calls: sum.calls, Failures: sum.failures}
}
