package shield_test

import (
	"context"
	"math"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func tokens(s *shield.Shield) float64 { return s.Snapshot().Layers[0].Tokens }

// gRPC's throttling: extra attempts while more than half is left.
func TestBudgetOfTokens(t *testing.T) {
	t.Parallel()
	budget := shield.NewBudget(10, 0.5)
	s := build(t, shield.Retry{Max: shield.Forever, Backoff: shield.Constant(0), Budget: budget})
	failing := &script{ends: []error{errDown}}
	_ = s.Do(t.Context(), failing.run)
	if failing.ran != 5 || tokens(s) != 5 {
		t.Errorf("%d runs, %v left", failing.ran, tokens(s))
	}
	healthy := &script{ends: []error{nil}}
	for range 3 {
		_ = s.Do(t.Context(), healthy.run)
	}
	if tokens(s) != 6.5 {
		t.Errorf("%v left after successes", tokens(s))
	}
	again := &script{ends: []error{errDown, nil}}
	if err := s.Do(t.Context(), again.run); err != nil || again.ran != 2 || tokens(s) != 6 {
		t.Errorf("%v after %d runs, %v left", err, again.ran, tokens(s))
	}
	for range 100 {
		_ = s.Do(t.Context(), healthy.run)
	}
	if tokens(s) != 10 {
		t.Errorf("%v of 10", tokens(s))
	}
}

// What the clause does not handle, and a caller's cancel, move no tokens.
func TestBudgetIgnoresWhatIsNoVerdict(t *testing.T) {
	for name, layer := range map[string]func(*shield.Budget) shield.Layer{
		"retry": func(b *shield.Budget) shield.Layer { return shield.Retry{Max: 1, Budget: b} },
		"hedge": func(b *shield.Budget) shield.Layer { return shield.Hedge{Delay: shield.OnFailure, Budget: b} },
	} {
		t.Run(name, func(t *testing.T) {
			s := build(t, shield.On(transient()), layer(shield.NewBudget(10, 1)))
			_ = s.Do(t.Context(), func(context.Context) error { return errFatal })
			ctx, cancel := context.WithCancel(t.Context())
			_ = s.Do(ctx, func(context.Context) error { cancel(); return ctx.Err() })
			if tokens(s) != 10 {
				t.Errorf("%v left", tokens(s))
			}
		})
	}
}

func TestBudgetOfAnAllowance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := build(t, shield.Retry{Max: shield.Forever, Backoff: shield.Constant(0), Budget: shield.NewAllowance(3, time.Second)})
		for i, want := range []int{4, 1, 4} { // full, used up, full again
			w := &script{ends: []error{errDown}}
			_ = s.Do(t.Context(), w.run)
			if w.ran != want {
				t.Errorf("call %d: %d runs, want %d", i, w.ran, want)
			}
			time.Sleep(600 * time.Millisecond)
		}
		time.Sleep(10 * time.Second) // what is not used lapses
		if tokens(s) != 3 {
			t.Errorf("%v left", tokens(s))
		}
	})
}

// Two shields share a budget: together they never have more in flight.
func TestBudgetOfAShareHoldsUnderFailures(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		const calls, share = 1000, 0.2
		budget := shield.NewShare(share, 3)
		retry := build(t, shield.Retry{Max: 5, Backoff: shield.Constant(time.Millisecond), Budget: budget})
		hedge := build(t, shield.Hedge{Max: 5, Delay: time.Millisecond, Budget: budget})
		var total, most atomic.Int64
		var running sync.Map
		work := func(id int) func(context.Context) error {
			var mine atomic.Int64
			return func(context.Context) error {
				if mine.Add(1) > 1 {
					running.Store(id, true)
					n := total.Add(1)
					defer total.Add(-1)
					for old := most.Load(); n > old && !most.CompareAndSwap(old, n); old = most.Load() {
					}
				}
				time.Sleep(5 * time.Millisecond)
				return errDown
			}
		}
		var group sync.WaitGroup
		for id := range calls {
			s := []*shield.Shield{retry, hedge}[id%2]
			group.Go(func() { _ = s.Do(t.Context(), work(id)) })
		}
		group.Wait()
		synctest.Wait()
		if most.Load() > calls*share || most.Load() < calls*share/2 {
			t.Errorf("%d extra attempts at once, allowed are %v", most.Load(), calls*share)
		}
		if tokens(retry) != 3 {
			t.Errorf("%v left at rest, want 3", tokens(retry))
		}
	})
}

// An allowance and tokens hold whoever asks at the same time.
func TestBudgetsHoldUnderConcurrentFailures(t *testing.T) {
	const calls = 1000
	for name, c := range map[string]struct {
		budget *shield.Budget
		most   int64
	}{
		"allowance": {shield.NewAllowance(50, time.Hour), 50},
		"tokens":    {shield.NewBudget(100, 0.1), calls}, // a call in flight may spend once more
	} {
		t.Run(name, func(t *testing.T) {
			both := []*shield.Shield{
				build(t, shield.Retry{Max: 3, Backoff: shield.Constant(0), Budget: c.budget}),
				build(t, shield.Hedge{Max: 3, Delay: shield.OnFailure, Budget: c.budget}),
			}
			var runs atomic.Int64
			var group sync.WaitGroup
			for id := range calls {
				group.Go(func() {
					_ = both[id%2].Do(t.Context(), func(context.Context) error { runs.Add(1); return errDown })
				})
			}
			group.Wait()
			if extra := runs.Load() - calls; extra > c.most || extra < 1 {
				t.Errorf("%d extra attempts, allowed are %d", extra, c.most)
			}
			if tokens(both[0]) < 0 {
				t.Errorf("%v left", tokens(both[0]))
			}
			before := runs.Load()
			_ = both[0].Do(t.Context(), func(context.Context) error { runs.Add(1); return errDown })
			if runs.Load() != before+1 {
				t.Error("a used-up budget allowed more, or refused a first attempt")
			}
		})
	}
}

func TestBudgetTooLargeToCount(t *testing.T) {
	t.Parallel()
	_, err := shield.New("x", shield.Retry{Budget: shield.NewAllowance(math.MaxInt, 1)})
	if fits := math.MaxInt == math.MaxInt32; (err == nil) != fits {
		t.Error(err)
	}
}

func TestBudgetFaults(t *testing.T) {
	t.Parallel()
	for want, budget := range map[string]*shield.Budget{
		"tokens is 0": shield.NewBudget(0, 1), "tokens is 1001": shield.NewBudget(1001, 1),
		"ratio is 0:": shield.NewBudget(1, 0), "ratio is NaN": shield.NewBudget(1, nan), "ratio is 1001": shield.NewBudget(1, 1001),
		"n is -1": shield.NewAllowance(-1, 1), "period is 0s": shield.NewAllowance(1, 0),
		"share is 0:": shield.NewShare(0, 1), "share is NaN": shield.NewShare(nan, 1), "share is 1.5": shield.NewShare(1.5, 1), "least is -1": shield.NewShare(1, -1),
	} {
		for _, layer := range []shield.Layer{shield.Retry{Budget: budget}, shield.Hedge{Budget: budget}} {
			if _, err := shield.New("x", layer); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%q is missing in %v", want, err)
			}
		}
	}
}

// Periods are counted from the first use, however late the next is.
func TestBudgetPeriodsKeepTheirGrid(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := build(t, shield.Retry{Max: shield.Forever, Backoff: shield.Constant(0), Budget: shield.NewAllowance(1, time.Second)})
		for _, wait := range []time.Duration{0, 1600 * time.Millisecond, 500 * time.Millisecond} {
			time.Sleep(wait)
			w := &script{ends: []error{errDown}}
			if _ = s.Do(t.Context(), w.run); w.ran != 2 {
				t.Errorf("%d runs after %v", w.ran, wait)
			}
		}
	})
}

func TestBudgetCountsFailuresOfAHedge(t *testing.T) {
	t.Parallel()
	s := build(t, shield.Hedge{Max: 100, Delay: shield.OnFailure, Budget: shield.NewBudget(10, 1)})
	p := &play{acts: []act{{err: errDown}}}
	if _, _ = p.call(t.Context(), s); p.runs.Load() != 5 || tokens(s) != 5 {
		t.Errorf("%d runs, %v left", p.runs.Load(), tokens(s))
	}
}
