package shield

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

var errDown = errors.New("down")

// history notes the transitions of a breaker.
type history struct {
	mu    sync.Mutex
	steps []string
}

func (h *history) note(from, to string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.steps = append(h.steps, from+">"+to)
}

func (h *history) want(t *testing.T, steps ...string) {
	t.Helper()
	h.mu.Lock()
	defer h.mu.Unlock()
	if !slices.Equal(h.steps, steps) {
		t.Errorf("transitions %v, want %v", h.steps, steps)
	}
}

func mustBe(t *testing.T, b *breakerState, want string) {
	t.Helper()
	if got := b.state(monotonic()).Breaker; got != want {
		t.Fatalf("breaker is %s, want %s", got, want)
	}
}

func TestBreakerCountsFailuresInARow(t *testing.T) {
	t.Parallel()
	b := newBreaker(Breaker{})
	admitted(t, b, failed, 4)
	admitted(t, b, succeeded, 1)
	admitted(t, b, failed, 2)
	admitted(t, b, ignored, 1) // neither ends the row nor is part of it
	admitted(t, b, panicked, 2)
	mustBe(t, b, "closed")
	if got := b.state(monotonic()).Failures; got != 4 {
		t.Errorf("%d failures, want 4", got)
	}
	admitted(t, b, failed, 1)
	mustBe(t, b, "open")
}

func TestBreakerRatioNeedsCalls(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(Breaker{Ratio: 0.5})
		admitted(t, b, failed, 9)
		mustBe(t, b, "closed")
		time.Sleep(31 * time.Second) // all forgotten
		admitted(t, b, succeeded, 6)
		admitted(t, b, failed, 5)
		mustBe(t, b, "closed")
		if s := b.state(monotonic()); s.Calls != 11 || s.Failures != 5 {
			t.Errorf("%d calls, %d failures", s.Calls, s.Failures)
		}
		admitted(t, b, failed, 1)
		mustBe(t, b, "open")
	})
}

// TestBreakerRatioIsExact: 0.07 of 100 are 7, although 0.07*100 is a little more.
func TestBreakerRatioIsExact(t *testing.T) {
	t.Parallel()
	b := newBreaker(Breaker{Ratio: 0.07, MinCalls: 100})
	admitted(t, b, succeeded, 93)
	admitted(t, b, failed, 6)
	mustBe(t, b, "closed")
	admitted(t, b, failed, 1)
	mustBe(t, b, "open")
}

// taking lets calls take a while.
func taking(t *testing.T, b *breakerState, d time.Duration, kind endKind, n int) {
	t.Helper()
	for range n {
		pass := mustEnter(t, b)
		time.Sleep(d)
		b.exit(pass, ending(kind))
	}
}

func TestBreakerSlowCalls(t *testing.T) {
	t.Parallel()
	const limit, slow = time.Millisecond, time.Millisecond + 1
	for _, c := range []struct {
		name   string
		config Breaker
		calls  func(*testing.T, *breakerState)
		want   string
	}{
		{"not longer is not slow", Breaker{Ratio: 1, MinCalls: 2, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, limit, succeeded, 2)
		}, "closed"},
		{"a slow success is a failure of the ratio", Breaker{Ratio: 1, MinCalls: 2, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, slow, succeeded, 2)
		}, "open"},
		{"slow and failed is one failure", Breaker{Ratio: 0.6, MinCalls: 2, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, 0, succeeded, 1)
			taking(t, b, slow, failed, 1)
		}, "closed"},
		{"a ratio of its own", Breaker{Ratio: 1, SlowRatio: 0.5, MinCalls: 2, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, 0, succeeded, 1)
			taking(t, b, slow, succeeded, 1)
		}, "open"},
		{"slow successes are no failures then", Breaker{Ratio: 0.5, SlowRatio: 1, MinCalls: 2, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, 0, succeeded, 1)
			taking(t, b, slow, succeeded, 1)
		}, "closed"},
		{"slow beside failures in a row", Breaker{SlowRatio: 0.5, MinCalls: 2, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, 0, succeeded, 1)
			taking(t, b, slow, failed, 1)
		}, "open"},
		{"an ignored slow call counts nowhere", Breaker{SlowRatio: 0.5, MinCalls: 1, SlowAfter: limit}, func(t *testing.T, b *breakerState) {
			taking(t, b, slow, ignored, 3)
		}, "closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(c.config)
				c.calls(t, b)
				mustBe(t, b, c.want)
			})
		})
	}
}

func TestBreakerRejections(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(Breaker{Failures: 1, Open: time.Minute})
		admitted(t, b, failed, 1)
		time.Sleep(15 * time.Second)
		mustRefuse(t, b, Rejected{Reason: BreakerOpen, RetryAfter: 45 * time.Second})
		time.Sleep(45*time.Second - 1)
		mustBe(t, b, "open")
		mustRefuse(t, b, Rejected{Reason: BreakerOpen, RetryAfter: 1})
		time.Sleep(time.Nanosecond)
		mustBe(t, b, "half-open") // before any call
		probe := mustEnter(t, b)
		mustRefuse(t, b, Rejected{Reason: BreakerOpen})
		b.isolate("by hand")
		mustBe(t, b, "isolated")
		mustRefuse(t, b, Rejected{Reason: Isolated, Note: "by hand"})
		b.exit(probe, ending(succeeded))
		time.Sleep(time.Hour)
		mustRefuse(t, b, Rejected{Reason: Isolated, Note: "by hand"})
		b.reset()
		admitted(t, b, succeeded, 3)
		mustBe(t, b, "closed")
	})
}

func TestBreakerCohort(t *testing.T) {
	t.Parallel()
	consecutive := Breaker{Failures: 2, Probes: 3}
	ratio := Breaker{Ratio: 0.5, MinCalls: 2, Probes: 3}
	slowly := Breaker{SlowRatio: 0.5, MinCalls: 2, Failures: 2, Probes: 2, SlowAfter: time.Second}
	for _, c := range []struct {
		name   string
		config Breaker
		probes []endKind // the states below are those after each of them
		takes  time.Duration
		want   []string
	}{
		{"all must succeed", consecutive, []endKind{succeeded, succeeded, succeeded}, 0, []string{"half-open", "half-open", "closed"}},
		{"the first that fails opens", consecutive, []endKind{succeeded, failed}, 0, []string{"half-open", "open"}},
		{"a ratio waits for all", ratio, []endKind{failed, succeeded, succeeded}, 0, []string{"half-open", "half-open", "closed"}},
		{"a ratio that is reached", ratio, []endKind{failed, panicked, succeeded}, 0, []string{"half-open", "half-open", "open"}},
		{"slow probes", slowly, []endKind{succeeded, succeeded}, 2 * time.Second, []string{"half-open", "open"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				b := newBreaker(c.config)
				admitted(t, b, failed, 2)
				mustBe(t, b, "open")
				time.Sleep(defaultOpen)
				probes := make([]ticket, c.config.Probes)
				for i := range probes {
					probes[i] = mustEnter(t, b)
				}
				mustRefuse(t, b, Rejected{Reason: BreakerOpen})
				time.Sleep(c.takes)
				for i, kind := range c.probes {
					b.exit(probes[i], ending(kind))
					mustBe(t, b, c.want[i])
				}
			})
		})
	}
}

// TestBreakerBacksOff: trips in a row stay open longer, and a close ends the row.
func TestBreakerBacksOff(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		curve := Exponential(time.Second)
		curve.Jitter = NoJitter
		b := newBreaker(Breaker{Failures: 1, OpenBackoff: curve})
		for _, open := range []time.Duration{1, 2, 4} {
			admitted(t, b, failed, 1)
			mustRefuse(t, b, Rejected{Reason: BreakerOpen, RetryAfter: open * time.Second})
			time.Sleep(open * time.Second)
		}
		admitted(t, b, succeeded, 1)
		admitted(t, b, failed, 1)
		mustRefuse(t, b, Rejected{Reason: BreakerOpen, RetryAfter: time.Second})
	})
}

type stubBackoff struct {
	delay  time.Duration
	broken bool
}

func (s stubBackoff) Delay(Try) time.Duration {
	if s.broken {
		panic("broken")
	}
	return s.delay
}

func (stubBackoff) String() string { return "stub" }

func TestBreakerWithABrokenBackoff(t *testing.T) {
	t.Parallel()
	for _, backoff := range []stubBackoff{{broken: true}, {delay: -1}} {
		synctest.Test(t, func(t *testing.T) {
			b := newBreaker(Breaker{Failures: 1, OpenBackoff: backoff})
			admitted(t, b, failed, 1)
			mustRefuse(t, b, Rejected{Reason: BreakerOpen, RetryAfter: defaultOpen})
		})
	}
}

func TestBreakerOpenForEver(t *testing.T) {
	t.Parallel()
	b := newBreaker(Breaker{Failures: 1, Open: math.MaxInt64})
	admitted(t, b, failed, 1)
	mustBe(t, b, "open")
}

// TestCaseB03EveryEndOfAProbeFreesItsSlot.
func TestCaseB03EveryEndOfAProbeFreesItsSlot(t *testing.T) {
	t.Parallel()
	errNotFound := errors.New("not found")
	failures := Match("failures", func(_ context.Context, err error) bool { return !errors.Is(err, errNotFound) && !rejected(err) })
	const open = 50 * time.Millisecond
	for _, c := range []struct {
		name  string
		probe func(t *testing.T, outer, inner *Shield)
		opens bool
	}{
		{"ignored error", func(t *testing.T, outer, _ *Shield) {
			if err := outer.Do(t.Context(), func(context.Context) error { return errNotFound }); !errors.Is(err, errNotFound) {
				t.Fatal(err)
			}
		}, false},
		{"caller's cancel", func(t *testing.T, outer, _ *Shield) {
			ctx, cancel := context.WithCancel(t.Context())
			if err := outer.Do(ctx, func(ctx context.Context) error { cancel(); return ctx.Err() }); !errors.Is(err, context.Canceled) {
				t.Fatal(err)
			}
		}, false},
		{"panic", func(t *testing.T, outer, _ *Shield) {
			defer func() {
				if recover() == nil {
					t.Fatal("the panic did not come through")
				}
			}()
			_ = outer.Do(t.Context(), func(context.Context) error { panic("probe") })
		}, true},
		{"inner rejection", func(t *testing.T, outer, inner *Shield) {
			_ = inner.Do(t.Context(), func(ctx context.Context) error {
				if err := outer.Do(ctx, func(context.Context) error { return nil }); refusal(err).Reason != ConcurrencyLimited {
					t.Fatal(err)
				}
				return nil
			})
		}, false},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				inner := Must(New("inner", Concurrency{Max: 1}))
				outer := Must(New("outer", On(failures), Breaker{Failures: 1, Open: open}, inner))
				if err := outer.Do(t.Context(), func(context.Context) error { return errDown }); !errors.Is(err, errDown) {
					t.Fatal(err)
				}
				time.Sleep(open)
				c.probe(t, outer, inner)
				healthy := func(context.Context) error { return nil }
				if c.opens {
					if got := refusal(outer.Do(t.Context(), healthy)); got.Reason != BreakerOpen || got.RetryAfter != open {
						t.Fatalf("%+v, want it to be open for %v", got, open)
					}
					time.Sleep(open)
				}
				if err := outer.Do(t.Context(), healthy); err != nil {
					t.Fatalf("healthy call: %v", err)
				}
				if got := outer.Snapshot().Layers[0].Breaker; got != "closed" {
					t.Errorf("breaker is %s", got)
				}
			})
		})
	}
}

// TestCaseB04RejectionsAreNoResults.
func TestCaseB04RejectionsAreNoResults(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Must(New("test", Breaker{Ratio: 0.5, Probes: 2}))
		work := func(err error) func(context.Context) error { return func(context.Context) error { return err } }
		for range 10 {
			_ = s.Do(t.Context(), work(errDown))
		}
		time.Sleep(defaultOpen)
		_ = s.Do(t.Context(), work(nil)) // a first probe of two
		probe, err := s.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		before := s.Snapshot().Layers[0]
		for range 1000 {
			if got := refusal(s.Do(t.Context(), work(nil))).Reason; got != BreakerOpen {
				t.Fatalf("reason %v", got)
			}
		}
		if after := s.Snapshot().Layers[0]; after != before {
			t.Errorf("%+v, want %+v", after, before)
		}
		_ = probe.Exit(nil)
		if got := s.Snapshot().Layers[0]; got.Breaker != "closed" || got.Failures != 0 {
			t.Errorf("%+v", got)
		}
	})
}

// TestCaseB05ResultsFromBeforeTheTripMoveNothing.
func TestCaseB05ResultsFromBeforeTheTripMoveNothing(t *testing.T) {
	t.Parallel()
	for _, late := range []endKind{failed, succeeded, ignored} {
		synctest.Test(t, func(t *testing.T) {
			var h history
			b := newBreaker(Breaker{Failures: 1, Open: 100 * time.Millisecond})
			b.observe(h.note)
			slow := mustEnter(t, b)
			admitted(t, b, failed, 1)
			time.Sleep(100 * time.Millisecond)
			probe := mustEnter(t, b)
			b.exit(slow, ending(late))
			mustBe(t, b, "half-open")
			mustRefuse(t, b, Rejected{Reason: BreakerOpen}) // no slot came free
			b.exit(probe, ending(succeeded))
			mustBe(t, b, "closed")
			h.want(t, "closed>open", "open>half-open", "half-open>closed")
		})
	}
}

// TestBreakerTwoTripsAtOnce: the second failure of one generation opens nothing.
func TestBreakerTwoTripsAtOnce(t *testing.T) {
	t.Parallel()
	var h history
	b := newBreaker(Breaker{Failures: 1})
	b.observe(h.note)
	p := b.phase.Load()
	b.trip(p, monotonic())
	b.trip(p, monotonic())
	h.want(t, "closed>open")
}

// TestBreakerProbeThatComesTooLate: it found the half-open phase, but another
// probe has decided before it got the lock.
func TestBreakerProbeThatComesTooLate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		b := newBreaker(Breaker{Failures: 1, Probes: 2})
		admitted(t, b, failed, 1)
		time.Sleep(defaultOpen)
		first, second := mustEnter(t, b), mustEnter(t, b)
		p := b.phase.Load()
		b.exit(first, ending(failed))
		b.judge(p, second, ending(succeeded))
		mustBe(t, b, "open")
	})
}

func TestTransitionsAreChanges(t *testing.T) {
	t.Parallel()
	var h history
	b := newBreaker(Breaker{Failures: 2})
	b.observe(h.note)
	admitted(t, b, failed, 1)
	b.reset() // closed as before, but without the failure
	admitted(t, b, failed, 1)
	mustBe(t, b, "closed")
	h.want(t)
}

func TestTransitionsAreSerial(t *testing.T) {
	t.Parallel()
	var h history
	b := newBreaker(Breaker{Failures: 1})
	depth := 0
	b.observe(func(from, to string) {
		if depth++; depth > 1 {
			t.Error("told within a telling")
		}
		h.note(from, to)
		if to == "open" {
			b.isolate("from the observer")
			b.reset()
		}
		depth--
		panic("a broken observer")
	})
	admitted(t, b, failed, 1)
	h.want(t, "closed>open", "open>isolated", "isolated>closed")
	b.isolate("")
	h.want(t, "closed>open", "open>isolated", "isolated>closed", "closed>isolated")
}

// TestTransitionsOutliveAnObserverThatExits: t.FailNow in an observer ends its
// goroutine.
func TestTransitionsOutliveAnObserverThatExits(t *testing.T) {
	t.Parallel()
	var h history
	var list transitions
	exits := true
	list.observe(func(from, to string) {
		h.note(from, to)
		if exits {
			exits = false
			runtime.Goexit()
		}
	})
	list.add("a", "b")
	list.add("b", "c")
	done := make(chan struct{})
	go func() { defer close(done); list.tell() }()
	<-done
	list.add("c", "d")
	list.tell()
	h.want(t, "a>b", "b>c", "c>d")
}

func TestBreakerFaultsAndText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config Breaker
		faults string
	}{
		{Breaker{}, ""},
		{Breaker{Failures: -1, Open: -1, Probes: -1}, "Failures Open Probes"},
		{Breaker{Failures: 3, Ratio: 0.5}, "Failures"},
		{Breaker{Ratio: math.NaN()}, "Ratio"},
		{Breaker{Ratio: 1.01}, "Ratio"},
		{Breaker{Ratio: 0.5, SlowRatio: -0.1, SlowAfter: 1}, "SlowRatio"},
		{Breaker{MinCalls: 5, Window: time.Second, SlowAfter: time.Second}, "MinCalls Window SlowAfter"},
		{Breaker{Ratio: 0.5, MinCalls: -1, Window: 9 * time.Millisecond, SlowAfter: -1}, "MinCalls Window SlowAfter"},
		{Breaker{SlowRatio: 0.5}, "SlowRatio"},
		{Breaker{Open: 1, OpenBackoff: Exponential(1)}, "Open"},
		{Breaker{OpenBackoff: Exponential(-1)}, "OpenBackoff.Base"},
	} {
		if got := strings.Join(faultsOf(t, c.config), " "); got != c.faults {
			t.Errorf("%+v: faults %q, want %q", c.config, got, c.faults)
		}
	}
	for want, config := range map[string]Breaker{
		"Breaker(5 consecutive, open 15s)":                                                           {},
		"Breaker(50% of 20+ in 30s, slow over 1s, open 1m0s, 3 probes)":                              {Ratio: 0.5, MinCalls: 20, SlowAfter: time.Second, Open: time.Minute, Probes: 3},
		"Breaker(2 consecutive, slow over 1s 33.33% of 10+ in 1m0s, open 1s x2 <=30s, equal jitter)": {Failures: 2, SlowAfter: time.Second, SlowRatio: 1.0 / 3, Window: time.Minute, OpenBackoff: Exponential(time.Second)},
	} {
		if got := config.String(); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
	}
}

// TestBreakerUnderLoad: whatever happens at once, transitions alternate as in the
// diagram, and at most Probes calls run half-open.
func TestBreakerUnderLoad(t *testing.T) {
	t.Parallel()
	var h history
	b := newBreaker(Breaker{Ratio: 0.5, MinCalls: 4, Open: 50 * time.Microsecond, Probes: 2})
	b.observe(h.note)
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(worker, 3))
			for range 5000 {
				pass, err := b.enter(context.Background(), monotonic())
				if err == nil {
					b.exit(pass, ending(endKind(random.IntN(4))))
				}
				if random.IntN(1000) == 0 {
					b.isolate("")
					b.reset()
				}
				if p := b.phase.Load(); p.mode == halfOpen {
					b.mu.Lock()
					if p.admitted > 2 || p.ended.calls > p.admitted {
						t.Errorf("%d probes, %d ended", p.admitted, p.ended.calls)
					}
					b.mu.Unlock()
				}
			}
		})
	}
	wg.Wait()
	at := "closed"
	for _, step := range h.steps {
		from, to, _ := strings.Cut(step, ">")
		if from != at {
			t.Fatalf("%s after %s", step, at)
		}
		at = to
	}
	if len(h.steps) < 10 {
		t.Errorf("%d transitions only", len(h.steps))
	}
}

func TestBreakerAllocatesNothing(t *testing.T) {
	noAllocs(t, newBreaker(Breaker{}))
	noAllocs(t, newBreaker(Breaker{Ratio: 0.5, SlowAfter: time.Second, SlowRatio: 0.5}))
}

func BenchmarkBreaker(b *testing.B) {
	b.Run("consecutive", func(b *testing.B) { benchmarkAdmitter(b, newBreaker(Breaker{})) })
	b.Run("ratio", func(b *testing.B) { benchmarkAdmitter(b, newBreaker(Breaker{Ratio: 0.5, SlowAfter: time.Second})) })
}
