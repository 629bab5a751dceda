package shield_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func fail(context.Context) error { return errDown }

func live(t *testing.T, layers ...shield.Layer) *shield.Live {
	t.Helper()
	l, err := shield.NewLive("live", layers...)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func TestLiveKeepsTheStateOfEqualLayers(t *testing.T) {
	breaker, clause := shield.Breaker{Failures: 1}, transient()
	for name, c := range map[string]struct {
		next []shield.Layer
		open bool
	}{
		"equal":               {[]shield.Layer{shield.Retry{Max: 9}, shield.On(clause), breaker}, true},
		"another config":      {[]shield.Layer{shield.On(clause), shield.Breaker{Failures: 2}}, false},
		"another clause":      {[]shield.Layer{shield.On(transient()), breaker}, false},
		"the state goes once": {[]shield.Layer{shield.On(clause), shield.Breaker{Failures: 1}, shield.Breaker{Failures: 1}}, true},
	} {
		t.Run(name, func(t *testing.T) {
			l := live(t, shield.On(clause), breaker)
			_ = l.Shield().Do(t.Context(), fail)
			if err := l.Swap(c.next...); err != nil {
				t.Fatal(err)
			}
			if err := l.Shield().Do(t.Context(), func(context.Context) error { return nil }); (err != nil) != c.open {
				t.Error(err)
			}
		})
	}
}

func TestLiveFaultKeepsTheShieldBefore(t *testing.T) {
	t.Parallel()
	l := live(t, shield.Breaker{Failures: 1})
	_ = l.Shield().Do(t.Context(), fail)
	before := l.Shield()
	if err := l.Swap(shield.Breaker{Failures: 1}, shield.Timeout{After: -1}); err == nil || l.Shield() != before {
		t.Error(err)
	}
	if err := l.Swap(shield.Breaker{Failures: 1}); err != nil || l.Shield().Snapshot().Layers[0].Breaker != "open" {
		t.Errorf("%v: the failed swap took the breaker's state away", err)
	}
	if _, err := shield.NewLive("x", nil); err == nil {
		t.Error("no error")
	}
}

func TestLiveTellsTheObserversInForce(t *testing.T) {
	t.Parallel()
	var told []string
	listen := func(name string) shield.Layer {
		return shield.Observe(func(e shield.Event) { told = append(told, name+" "+string(e.Type)+" "+e.To) })
	}
	l := live(t, listen("old"), shield.Breaker{Failures: 1})
	if err := l.Swap(listen("new"), shield.Breaker{Failures: 1}); err != nil {
		t.Fatal(err)
	}
	_ = l.Shield().Do(t.Context(), fail)
	if got := strings.Join(told, ", "); got != "new transition open" {
		t.Error(got)
	}
}

func TestLiveLeavesSharedStateToItsShield(t *testing.T) {
	t.Parallel()
	shared := build(t, shield.Breaker{Failures: 1})
	l := live(t, shared)
	if err := l.Swap(shield.Breaker{Failures: 1}); err != nil {
		t.Fatal(err)
	}
	_ = shared.Do(t.Context(), fail)
	if got := l.Shield().Snapshot().Layers[0].Breaker; got != "closed" {
		t.Errorf("%s: a layer of one's own took a shared state", got)
	}
}

func TestLiveSwapsUnderCalls(t *testing.T) {
	t.Parallel()
	l := live(t, shield.Concurrency{Max: 100})
	var group sync.WaitGroup
	for i := range 4 {
		group.Go(func() {
			for n := range 200 {
				if i == 0 {
					_ = l.Swap(shield.Timeout{After: time.Duration(n+1) * time.Hour}, shield.Concurrency{Max: 100})
				}
				if err := l.Shield().Do(t.Context(), func(context.Context) error { return nil }); err != nil {
					t.Error(err)
				}
			}
		})
	}
	group.Wait()
	if n := l.Shield().Snapshot().Layers[1].InFlight; n != 0 {
		t.Errorf("%d in flight", n)
	}
}

func TestObserveTellsInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var told []string
		s := build(t,
			shield.Observe(func(shield.Event) { panic("broken") }),
			shield.Fallback(struct{}{}),
			shield.Retry{Max: 1, Backoff: shield.Constant(time.Second)},
			shield.Breaker{Failures: 2},
			build(t, shield.Timeout{After: time.Millisecond}),
			shield.Hedge{Delay: shield.OnFailure},
			shield.Observe(func(e shield.Event) {
				told = append(told, string(e.Type)+e.From)
			}),
		)
		err := s.Do(t.Context(), func(ctx context.Context) error { <-ctx.Done(); return errDown })
		want := "expired retrying expired transitionclosed gave_up fell_back"
		if got := strings.Join(told, " "); err != nil || got != want {
			t.Errorf("%v\ngot  %s\nwant %s", err, got, want)
		}
		told = nil
		_ = s.Do(t.Context(), fail)
		if got := strings.Join(told, " "); got != "refused fell_back" {
			t.Error(got)
		}
	})
}

func TestChaos(t *testing.T) {
	t.Parallel()
	draw := func(seed uint64) string {
		s := build(t, shield.Chaos{Rate: 0.25, Fault: errDown, Seed: seed})
		var b strings.Builder
		for range 4000 {
			hit := byte('-')
			if s.Do(t.Context(), func(context.Context) error { return nil }) != nil {
				hit = 'x'
			}
			b.WriteByte(hit)
		}
		return b.String()
	}
	first := draw(7)
	if hits := strings.Count(first, "x"); hits < 900 || hits > 1100 {
		t.Errorf("%d hits of 4000 at a quarter", hits)
	}
	random := draw(0)
	if draw(7) != first || draw(8) == first || draw(0) == random {
		t.Error("a seed repeats, and nothing else")
	}
}

func TestChaosLatencyHonoursTheContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := build(t, shield.Chaos{Rate: 1, Latency: time.Second, Fault: errDown})
		began := time.Now()
		if err := s.Do(t.Context(), func(context.Context) error { return nil }); !errors.Is(err, errDown) || time.Since(began) != time.Second {
			t.Error(err, time.Since(began))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		began = time.Now()
		if err := s.Do(ctx, fail); !errors.Is(err, context.DeadlineExceeded) || time.Since(began) != time.Millisecond {
			t.Error(err, time.Since(began))
		}
		if !s.Traits().Blocks || build(t, shield.Chaos{Rate: 1}).Traits().Blocks {
			t.Error("Blocks is wrong")
		}
	})
}
