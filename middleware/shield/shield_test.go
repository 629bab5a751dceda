package shield_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

var errDown = errors.New("db down")

// script is work that ends as told, attempt by attempt; the last entry repeats.
type script struct {
	ends  []error
	takes time.Duration
	ran   int
}

func (s *script) run(ctx context.Context) error {
	err := s.ends[min(s.ran, len(s.ends)-1)]
	s.ran++
	if s.takes > 0 {
		select {
		case <-time.After(s.takes):
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	return err
}

func build(t *testing.T, layers ...shield.Layer) *shield.Shield {
	t.Helper()
	s, err := shield.New("test", layers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestEmptyShieldRunsItsWork(t *testing.T) {
	t.Parallel()
	w := &script{ends: []error{errDown}}
	if err := build(t).Do(t.Context(), w.run); err != errDown || w.ran != 1 { //nolint:errorlint // the very same
		t.Errorf("%v after %d runs", err, w.ran)
	}
}

func TestEndedContextRunsNothing(t *testing.T) {
	t.Parallel()
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	w := &script{ends: []error{nil}}
	if err := build(t, shield.Retry{}).Do(ctx, w.run); !errors.Is(err, context.Canceled) || w.ran != 0 {
		t.Errorf("%v after %d runs", err, w.ran)
	}
}

func TestRetryReturnsTheLastFailureItself(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		last := errors.New("last")
		w := &script{ends: []error{errDown, errDown, last}}
		err := build(t, shield.Retry{Max: 2}).Do(t.Context(), w.run)
		if err != last || w.ran != 3 { //nolint:errorlint // the very same
			t.Errorf("%v after %d runs", err, w.ran)
		}
	})
}

// B17: a wait that does not fit is not begun, a cancel is always a cancel.
func TestCaseB17BackoffThatDoesNotFit(t *testing.T) {
	t.Parallel()
	t.Run("deadline", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
			defer cancel()
			w := &script{ends: []error{errDown}}
			began := time.Now()
			err := build(t, shield.Retry{Backoff: shield.Constant(500 * time.Millisecond)}).Do(ctx, w.run)
			if err != errDown || w.ran != 1 || time.Since(began) != 0 { //nolint:errorlint // the very same
				t.Errorf("%v after %d runs and %v", err, w.ran, time.Since(began))
			}
		})
	})
	t.Run("cancel during the wait", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(20*time.Millisecond, cancel)
			w := &script{ends: []error{errDown}}
			began := time.Now()
			err := build(t, shield.Retry{Backoff: shield.Constant(time.Second)}).Do(ctx, w.run)
			if !errors.Is(err, context.Canceled) || w.ran != 1 || time.Since(began) != 20*time.Millisecond {
				t.Errorf("%v after %d runs and %v", err, w.ran, time.Since(began))
			}
		})
	})
	t.Run("cancel during the attempt", func(t *testing.T) {
		t.Parallel()
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			runs := 0
			err := build(t, shield.Retry{}).Do(ctx, func(context.Context) error { runs++; cancel(); return errDown })
			if !errors.Is(err, context.Canceled) || runs != 1 {
				t.Fatalf("%v after %d runs", err, runs)
			}
		}
	})
}

func TestCaseB24WhoseDeadlineItWas(t *testing.T) {
	t.Parallel()
	attempt := shield.Timeout{After: 50 * time.Millisecond}
	retry := shield.Retry{Max: 3, Backoff: shield.Constant(5 * time.Millisecond)}
	for name, c := range map[string]struct {
		layers         []shield.Layer
		cancel, within time.Duration
		hangs          int
		runs           int
		took           time.Duration
		timedOut       bool
		want           error
	}{
		"attempt timeout is retried": {layers: []shield.Layer{retry, attempt}, within: time.Second, hangs: 1, runs: 2, took: 55 * time.Millisecond},
		"without retry":              {layers: []shield.Layer{attempt}, within: time.Second, hangs: 1, runs: 1, took: 50 * time.Millisecond, timedOut: true, want: context.DeadlineExceeded},
		"the caller cancels":         {layers: []shield.Layer{attempt}, within: time.Second, cancel: 10 * time.Millisecond, hangs: 1, runs: 1, took: 10 * time.Millisecond, want: context.Canceled},
		"the caller's is shorter":    {layers: []shield.Layer{retry, attempt}, within: 30 * time.Millisecond, hangs: 9, runs: 1, took: 30 * time.Millisecond, want: context.DeadlineExceeded},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				if c.cancel > 0 {
					time.AfterFunc(c.cancel, cancel)
				}
				runs, began := 0, time.Now()
				err := build(t, c.layers...).Do(ctx, func(ctx context.Context) error {
					if runs++; runs > c.hangs {
						return nil
					}
					<-ctx.Done()
					return ctx.Err()
				})
				var timedOut *shield.TimedOut
				if !errors.Is(err, c.want) || errors.As(err, &timedOut) != c.timedOut || runs != c.runs || time.Since(began) != c.took {
					t.Errorf("%v after %d runs and %v", err, runs, time.Since(began))
				}
			})
		})
	}
}

func TestTimeoutDeliversALateSuccess(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		got, err := shield.Call(t.Context(), build(t, shield.Timeout{After: time.Second}), 7, func(_ context.Context, n int) (int, error) {
			time.Sleep(2 * time.Second)
			return n, nil
		})
		if got != 7 || err != nil {
			t.Errorf("%d, %v", got, err)
		}
	})
}

func TestNewReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := shield.New("orders", shield.Timeout{After: -1}, nil, shield.Retry{Max: -7, Budget: shield.NewBudget(0, 1)}, shield.Hedge{Delay: -2})
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		`shield "orders"`, "layer 0, Timeout: After is -1ns", "layer 1, <nil>", "layer 2, Retry: Max is -7", "layer 2, Retry: Budget is 0 tokens", "layer 3, Hedge: Delay is -2ns",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in:\n%v", want, err)
		}
	}
}

func TestAllocations(t *testing.T) {
	ctx := t.Context()
	work := func(_ context.Context, n int) (int, error) { return n, nil }
	for _, layers := range [][]shield.Layer{
		{},
		{shield.Retry{}},
		{shield.Retry{}, shield.Retry{}, shield.Chaos{}, shield.Chaos{}},
	} {
		s := build(t, layers...)
		if got := testing.AllocsPerRun(1000, func() { _, _ = shield.Call(ctx, s, 7, work) }); got > 0 {
			t.Errorf("%v: %v allocations", s, got)
		}
		if len(layers) != 1 {
			continue
		}
	}
	chaos := build(t, shield.Chaos{}, shield.Chaos{})
	if got := testing.AllocsPerRun(1000, func() {
		p, err := chaos.Enter(ctx)
		if err == nil {
			_ = p.Exit(nil)
		}
	}); got > 0 {
		t.Errorf("Enter and Exit: %v allocations", got)
	}
}

func BenchmarkCall(b *testing.B) {
	work := func(_ context.Context, n int) (int, error) { return n, nil }
	for name, layers := range map[string][]shield.Layer{
		"empty": {}, "retry": {shield.Retry{}}, "chaos": {shield.Chaos{}}, "timeout": {shield.Timeout{}},
	} {
		s, err := shield.New(name, layers...)
		if err != nil {
			b.Fatal(err)
		}
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = shield.Call(b.Context(), s, 7, work)
			}
		})
	}
}
