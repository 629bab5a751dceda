package shield

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
)

func TestRateBurstAndRefill(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 10, Burst: 3})
		admitted(t, r, failed, 3) // a failure costs its token too
		mustRefuse(t, r, Rejected{Reason: RateLimited, RetryAfter: 100 * time.Millisecond})
		time.Sleep(99 * time.Millisecond)
		mustRefuse(t, r, Rejected{Reason: RateLimited, RetryAfter: time.Millisecond})
		time.Sleep(time.Millisecond)
		admitted(t, r, succeeded, 1)
		mustRefuse(t, r, Rejected{Reason: RateLimited, RetryAfter: 100 * time.Millisecond})
		if s := r.state(monotonic()); s.Tokens != 0 || s.Limit != 10 || s.RetryAfter != 100*time.Millisecond {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		if s := r.state(monotonic()); s.Tokens != 3 || s.RetryAfter != 0 {
			t.Errorf("%+v", s)
		}
		admitted(t, r, succeeded, 3)
		r.reset()
		admitted(t, r, succeeded, 3)
		mustRefuse(t, r, Rejected{Reason: RateLimited, RetryAfter: 100 * time.Millisecond})
	})
}

// TestRateLooksAtTheClockBeforeItRefuses: the time of the way down may be old.
func TestRateLooksAtTheClockBeforeItRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 1})
		before := monotonic()
		admitted(t, r, succeeded, 1)
		time.Sleep(time.Second)
		if _, err := r.enter(t.Context(), before); err != nil {
			t.Errorf("refused: %+v", refusal(err))
		}
	})
}

// enterBy has a call wait in the background and notes when it came through.
func enterBy(ctx context.Context, r *rateState, wg *sync.WaitGroup, took *time.Duration, err *error) {
	start := time.Now()
	wg.Go(func() {
		_, *err = r.enter(ctx, monotonic())
		*took = time.Since(start)
	})
	synctest.Wait()
}

func TestCaseB63CancelledCallTakesNoToken(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, time.Minute} {
		r := newRate(Rate{Permits: 1, Wait: wait})
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := r.enter(ctx, monotonic()); err != context.Canceled { //nolint:errorlint // the ctx's own
			t.Fatalf("wait %v: %v", wait, err)
		}
		admitted(t, r, succeeded, 1)
	}
}

func TestCaseB63HopelessWaitFailsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Must(New("test", Rate{Permits: 1, Wait: time.Minute}))
		work := func(context.Context) error { return nil }
		if err := s.Do(t.Context(), work); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		start := time.Now()
		err := s.Do(ctx, work)
		if d := time.Since(start); d != 0 {
			t.Errorf("took %v", d)
		}
		if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, &Rejected{Reason: RateLimited}) {
			t.Errorf("error %v", err)
		}
		const text = "shield test: Rate(1/1s, burst 1, wait 1m0s) refused the call: rate limited, try again in 1s, after the deadline of the call"
		if got := refusal(err); got.RetryAfter != time.Second || err.Error() != text {
			t.Errorf("%v, retry after %v", err, got.RetryAfter)
		}
		time.Sleep(time.Second) // no token was taken
		ctx, cancel = context.WithTimeout(t.Context(), time.Millisecond)
		defer cancel()
		if err := s.Do(ctx, work); err != nil {
			t.Error(err)
		}
	})
}

func TestCaseB63SecondWaiterMovesUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 1, Wait: time.Minute})
		admitted(t, r, succeeded, 1)
		var wg sync.WaitGroup
		var took [3]time.Duration
		var errs [3]error
		ctx, cancel := context.WithCancel(t.Context())
		enterBy(ctx, r, &wg, &took[0], &errs[0])
		enterBy(t.Context(), r, &wg, &took[1], &errs[1])
		enterBy(t.Context(), r, &wg, &took[2], &errs[2])
		if s := r.state(monotonic()); s.Queued != 3 {
			t.Errorf("%+v", s)
		}
		time.Sleep(200 * time.Millisecond)
		cancel()
		wg.Wait()
		if !errors.Is(errs[0], context.Canceled) || took[0] != 200*time.Millisecond {
			t.Errorf("first: %v after %v", errs[0], took[0])
		}
		if errs[1] != nil || took[1] != time.Second || errs[2] != nil || took[2] != 2*time.Second {
			t.Errorf("others: %v after %v, %v after %v", errs[1], took[1], errs[2], took[2])
		}
	})
}

// TestRateTokenOfACallThatGoesWhenItIsDue: the token goes to the next, who has
// waited for one more interval.
func TestRateTokenOfACallThatGoesWhenItIsDue(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 1, Wait: time.Minute})
		admitted(t, r, succeeded, 1)
		ctx, cancel := context.WithCancel(t.Context())
		w, err := r.reserve(ctx)
		if w == nil || err != nil {
			t.Fatal(w, err)
		}
		var wg sync.WaitGroup
		var took time.Duration
		enterBy(t.Context(), r, &wg, &took, &err)
		time.Sleep(time.Second)
		<-w.ready // granted, and
		cancel()  // gone
		r.giveBack(w)
		wg.Wait()
		if err != nil || took != time.Second {
			t.Errorf("%v after %v", err, took)
		}
	})
}

func TestRateWaitIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 2, Burst: 1, Wait: time.Second})
		admitted(t, r, succeeded, 1)
		var wg sync.WaitGroup
		var took [2]time.Duration
		var errs [2]error
		enterBy(t.Context(), r, &wg, &took[0], &errs[0])
		enterBy(t.Context(), r, &wg, &took[1], &errs[1])
		mustRefuse(t, r, Rejected{Reason: RateLimited, RetryAfter: 1500 * time.Millisecond})
		wg.Wait()
		if errs != [2]error{} || took != [2]time.Duration{500 * time.Millisecond, time.Second} {
			t.Errorf("%v after %v", errs, took)
		}
	})
}

func TestRateResetLetsWaitersGo(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 1, Per: time.Hour, Wait: math.MaxInt64})
		admitted(t, r, succeeded, 1)
		var wg sync.WaitGroup
		var took time.Duration
		var err error
		enterBy(t.Context(), r, &wg, &took, &err)
		r.reset()
		wg.Wait()
		if s := r.state(monotonic()); err != nil || took != 0 || s.Queued != 0 {
			t.Errorf("%v after %v, %+v", err, took, s)
		}
	})
}

// TestRateResetAndACallThatGoes: the bucket is full already.
func TestRateResetAndACallThatGoes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := newRate(Rate{Permits: 1, Wait: time.Minute})
		admitted(t, r, succeeded, 1)
		w, err := r.reserve(t.Context())
		if w == nil || err != nil {
			t.Fatal(w, err)
		}
		r.reset()
		r.giveBack(w)
		admitted(t, r, succeeded, 1)
		if _, err := r.reserve(t.Context()); err != nil {
			t.Error(err)
		}
		r.reset()
	})
}

// TestRateWaitForEver: waits add up, but not beyond the end of time.
func TestRateWaitForEver(t *testing.T) {
	t.Parallel()
	r := newRate(Rate{Permits: 1, Per: math.MaxInt64, Wait: math.MaxInt64})
	admitted(t, r, succeeded, 1)
	for i := range 30 {
		w, err := r.reserve(t.Context())
		if i > 0 && (w != nil || refusal(err).RetryAfter <= 0) {
			t.Errorf("waiter %d: %v, %+v", i, w != nil, refusal(err))
		}
	}
	r.reset()
	mustBeIdle(t, r)
}

// TestRateExtremes: no rate overflows into another, and none admits more than it
// says.
func TestRateExtremes(t *testing.T) {
	t.Parallel()
	const top = math.MaxInt
	for _, c := range []struct {
		config Rate
		span   time.Duration // after the first burst
		want   int           // admitted in it, at most 10000 are tried
	}{
		{Rate{Permits: top, Per: 1, Burst: 100}, 1, 8}, // the finest that it tells apart
		{Rate{Permits: top, Per: 1, Burst: 1}, 1, 1},
		{Rate{Permits: top, Burst: top}, 1, 10000},
		{Rate{Permits: 1, Per: math.MaxInt64, Burst: 1, Wait: 0}, time.Hour, 0},
		{Rate{Permits: 1, Per: math.MaxInt64, Burst: top}, time.Hour, 0},
		{Rate{Permits: 1, Per: 1, Burst: 1}, 1, 1},
		{Rate{Permits: 3, Per: 10, Burst: 100}, 100, 29}, // 3.33 ns are 27 eighths
		{Rate{Permits: 700_000, Per: time.Millisecond, Burst: 1000}, 100, 66},
		{Rate{Permits: 3, Burst: 3}, time.Second, 2}, // 333333334 ns
	} {
		t.Run(c.config.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { compareExtreme(t, c.config, c.span, c.want) })
		})
	}
}

func compareExtreme(t *testing.T, config Rate, span time.Duration, want int) {
	r := newRate(config)
	drain := func() (n int) {
		for ; n < 10000; n++ {
			if _, err := r.enter(t.Context(), monotonic()); err != nil {
				if after := refusal(err).RetryAfter; after <= 0 {
					t.Errorf("retry after %v", after)
				}
				break
			}
		}
		return n
	}
	if first := drain(); first < 1 {
		t.Errorf("%d at first", first)
	}
	time.Sleep(span)
	if got := drain(); got != want {
		t.Errorf("%d in %v, want %d", got, span, want)
	}
}

func TestRateFaultsAndText(t *testing.T) {
	t.Parallel()
	if got := faultsOf(t, Rate{Permits: -1, Per: -1, Burst: -1, Wait: -1}); strings.Join(got, " ") != "Permits Per Burst Wait" {
		t.Errorf("faults %v", got)
	}
	for want, config := range map[string]Rate{
		"Rate(100/1s, burst 100)":          {},
		"Rate(5/1m0s, burst 7, wait 20ms)": {Permits: 5, Per: time.Minute, Burst: 7, Wait: 20 * time.Millisecond},
	} {
		if got := config.String(); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
		if got := Must(New("test", config)).Traits().Blocks; got != (config.Wait > 0) {
			t.Errorf("%v: blocks %v", config, got)
		}
	}
}

// TestRateAgainstModel compares it with a bucket that is filled in fractions.
func TestRateAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 4))
			config := Rate{Permits: 1 + random.IntN(20), Burst: 1 + random.IntN(10)}
			config.Per = time.Duration(config.Permits) * time.Duration(1+random.IntN(1e6)) * time.Microsecond
			interval := config.Per / time.Duration(config.Permits)
			r := newRate(config)
			level := time.Duration(config.Burst) * interval // the bucket, in time
			for step := range 300 {
				pause := time.Duration(random.Int64N(int64(3 * interval)))
				if random.IntN(10) == 0 {
					pause *= 5
				}
				time.Sleep(pause)
				level = min(level+pause, time.Duration(config.Burst)*interval)
				_, err := r.enter(t.Context(), monotonic())
				want := level >= interval
				if want {
					level -= interval
				} else if got := refusal(err).RetryAfter; got != interval-level {
					t.Fatalf("seed %d step %d: retry after %v, want %v", seed, step, got, interval-level)
				}
				if want != (err == nil) {
					t.Fatalf("seed %d step %d: %v, want %v", seed, step, err == nil, want)
				}
			}
		})
	}
}

// TestRateWaitersAgainstModel: with random arrivals and cancels, calls come
// through in order, each exactly when its token is there, as if those who left
// had never come.
func TestRateWaitersAgainstModel(t *testing.T) {
	t.Parallel()
	const interval = 100 * time.Millisecond
	type call struct {
		arrives, leaves, through time.Duration
		err                      error
	}
	for seed := range uint64(100) {
		synctest.Test(t, func(t *testing.T) {
			random := rand.New(rand.NewPCG(seed, 5))
			r := newRate(Rate{Permits: 10, Burst: 1 + random.IntN(3), Wait: time.Hour})
			start := time.Now()
			calls := make([]call, 40)
			var at time.Duration
			var wg sync.WaitGroup
			for i := range calls {
				// Odd times: no arrival or cancel is at the time of a token.
				at += time.Duration(random.IntN(100))*time.Millisecond + 2
				c := &calls[i]
				*c = call{arrives: at + 1, leaves: time.Hour}
				if random.IntN(3) == 0 {
					c.leaves = at + 3 + time.Duration(random.IntN(300))*time.Millisecond
				}
				wg.Go(func() {
					time.Sleep(c.arrives)
					ctx, cancel := context.WithCancel(t.Context())
					defer cancel()
					timer := time.AfterFunc(c.leaves-c.arrives, cancel)
					defer timer.Stop()
					_, c.err = r.enter(ctx, monotonic())
					c.through = time.Since(start)
				})
			}
			wg.Wait()
			// The model goes from event to event: whoever is first and still there
			// gets the token as soon as there is one.
			tokens, last := time.Duration(r.config.Burst)*interval, time.Duration(0)
			gone := map[int]bool{}
			for {
				head, when := -1, time.Duration(math.MaxInt64)
				for i, c := range calls {
					if !gone[i] {
						head = i
						when = max(c.arrives, last)
						break
					}
				}
				if head < 0 {
					break
				}
				c := calls[head]
				level := min(tokens+when-last, time.Duration(r.config.Burst)*interval)
				if level < interval {
					when += interval - level
					level = interval
				}
				gone[head] = true
				if when > c.leaves {
					if !errors.Is(c.err, context.Canceled) || c.through != c.leaves {
						t.Fatalf("seed %d call %d: %v at %v, want it to leave at %v", seed, head, c.err, c.through, c.leaves)
					}
					continue
				}
				tokens, last = level-interval, when
				if c.err != nil || c.through != when {
					t.Fatalf("seed %d call %d: %v at %v, want %v", seed, head, c.err, c.through, when)
				}
			}
			mustBeIdle(t, r)
		})
	}
}

// TestRateUnderLoad: many callers together get no more than one would, waiting
// and leaving at any moment.
func TestRateUnderLoad(t *testing.T) {
	t.Parallel()
	for _, wait := range []time.Duration{0, 2 * time.Millisecond} {
		r := newRate(Rate{Permits: 10, Per: time.Millisecond, Burst: 5, Wait: wait})
		var n atomic.Int64
		start := time.Now()
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				random := rand.New(rand.NewPCG(1, 6))
				for range 400 {
					ctx, cancel := context.WithCancel(t.Context())
					timer := time.AfterFunc(time.Duration(random.IntN(2000))*time.Microsecond, cancel)
					if _, err := r.enter(ctx, monotonic()); err == nil {
						n.Add(1)
					}
					timer.Stop()
					cancel()
				}
			})
		}
		wg.Wait()
		if got, most := n.Load(), int64(5+time.Since(start)/(100*time.Microsecond)); got > most || got == 0 {
			t.Errorf("%d in %v, want up to %d", got, time.Since(start), most)
		}
		mustBeIdle(t, r)
	}
}

// mustBeIdle: nobody waits, and no clock runs.
func mustBeIdle(t *testing.T, r *rateState) {
	t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.line.length != 0 || r.waiting.Load() != 0 || r.timer != nil {
		t.Errorf("%d in line, %d waiting, timer %v", r.line.length, r.waiting.Load(), r.timer)
	}
}

func TestRateAllocatesNothing(t *testing.T) {
	noAllocs(t, newRate(Rate{Permits: 1e9}))
	noAllocs(t, newRate(Rate{Permits: 1e9, Wait: time.Second}))
}

func BenchmarkRate(b *testing.B) {
	benchmarkAdmitter(b, newRate(Rate{Permits: math.MaxInt, Burst: math.MaxInt}))
}
