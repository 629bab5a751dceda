package shield_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

var nan = math.NaN()

func failing[R any](err error) func(context.Context, struct{}) (R, error) {
	return func(context.Context, struct{}) (R, error) {
		var none R
		return none, err
	}
}

func TestFallback(t *testing.T) {
	t.Parallel()
	ctx := t.Context()
	got, err := shield.Call(ctx, build(t, shield.Fallback(7)), struct{}{}, failing[int](errDown))
	if got != 7 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	if _, err = shield.Call(ctx, build(t, shield.Fallback("seven")), struct{}{}, failing[int](errDown)); err == nil || !strings.Contains(err.Error(), "a string, the call returns a int") {
		t.Errorf("wrong type: %v", err)
	}
	for name, layer := range map[string]shield.Layer{
		"interface":    shield.Fallback[io.Reader](nil),
		"bare pointer": shield.Fallback[*strings.Reader](nil),
	} {
		if _, err := shield.Call(ctx, build(t, layer), struct{}{}, failing[io.Reader](errDown)); err != nil {
			t.Errorf("nil %s: %v", name, err)
		}
	}
	wrapped := build(t, shield.FallbackTo(func(_ context.Context, failure error) (int, error) {
		return 0, fmt.Errorf("and no cache: %w", failure)
	}))
	if _, err := shield.Call(ctx, wrapped, struct{}{}, failing[int](errDown)); err == nil || err.Error() != "and no cache: db down" {
		t.Errorf("its own error: %v", err)
	}
	outer := build(t, shield.Fallback(1), shield.On(transient()), shield.Fallback("inner"))
	if got, err := shield.Call(ctx, outer, struct{}{}, failing[int](errFatal)); got != 1 || err != nil {
		t.Errorf("outer: %d, %v", got, err)
	}
	if got, err := shield.Call(ctx, outer, struct{}{}, failing[string](errDown)); got != "inner" || err != nil {
		t.Errorf("inner: %q, %v", got, err)
	}
}

func TestFallbackReplacesRefusals(t *testing.T) {
	t.Parallel()
	reject := failing[int](&shield.Rejected{Reason: shield.RateLimited})
	if got, err := shield.Call(t.Context(), build(t, shield.Fallback(7)), struct{}{}, reject); got != 7 || err != nil {
		t.Errorf("%d, %v", got, err)
	}
	own := build(t, shield.On(transient()), shield.Fallback(7))
	if _, err := shield.Call(t.Context(), own, struct{}{}, reject); !errors.Is(err, &shield.Rejected{}) {
		t.Errorf("a clause of one's own decides: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, err := shield.Call(ctx, build(t, shield.Fallback(7)), struct{}{}, func(context.Context, struct{}) (int, error) { cancel(); return 0, errDown })
	if err == nil {
		t.Error("the caller's cancel was replaced")
	}
}

func TestFallbackOrder(t *testing.T) {
	t.Parallel()
	for _, layer := range []shield.Layer{shield.Retry{}, shield.Hedge{}, shield.Breaker{}} {
		_, err := shield.New("x", layer, shield.Fallback(1))
		var fault *shield.ConfigError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), "put the Fallback first") {
			t.Errorf("%T: %v", layer, err)
		}
		build(t, shield.Fallback(1), layer)
		build(t, layer, shield.On(transient()), shield.Fallback(1))
	}
}

func TestTimeoutNesting(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for name, c := range map[string]struct {
		after  []time.Duration
		within time.Duration
		took   time.Duration
		who    time.Duration // After of the *TimedOut, 0 for none
	}{
		"inner first":    {[]time.Duration{50 * ms, 10 * ms}, time.Second, 10 * ms, 10 * ms},
		"outer first":    {[]time.Duration{10 * ms, 50 * ms}, time.Second, 10 * ms, 10 * ms},
		"equal":          {[]time.Duration{10 * ms, 10 * ms}, time.Second, 10 * ms, 10 * ms},
		"caller's first": {[]time.Duration{50 * ms, 20 * ms}, 5 * ms, 5 * ms, 0},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				expired := 0
				layers := []shield.Layer{shield.Observe(func(e shield.Event) {
					if e.Type == shield.Expired {
						expired++
					}
				})}
				for _, after := range c.after {
					layers = append(layers, shield.Timeout{After: after})
				}
				s := build(t, layers...)
				ctx, cancel := context.WithTimeout(t.Context(), c.within)
				defer cancel()
				began := time.Now()
				cause := errors.New("torn off")
				err := s.Do(ctx, func(ctx context.Context) error { <-ctx.Done(); return cause })
				var who *shield.TimedOut
				found := errors.As(err, &who)
				if !errors.Is(err, cause) || time.Since(began) != c.took || found != (c.who > 0) || expired > 1 {
					t.Fatalf("%v after %v, %d events", err, time.Since(began), expired)
				}
				if found && (who.After != c.who || expired != 1 || errors.As(who.Cause, &who) || !who.Timeout()) {
					t.Errorf("%v, %d events", err, expired)
				}
			})
		})
	}
}

func TestTimeoutBehindAnEarlierDeadlineIsFree(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
	defer cancel()
	s := build(t, shield.Timeout{After: 2 * time.Hour}, shield.Timeout{After: 3 * time.Hour})
	var seen context.Context
	work := func(ctx context.Context) error { seen = ctx; return nil }
	if n := testing.AllocsPerRun(100, func() { _ = s.Do(ctx, work) }); n > 0 || seen != ctx {
		t.Errorf("%v allocations, same ctx %t", n, seen == ctx)
	}
}

// waysOf is a strategy that goes on n times.
type waysOf int

func (n waysOf) Handle(ctx context.Context, next func(context.Context) error) error {
	err := errFatal
	for range n {
		err = next(ctx)
	}
	return err
}
func (n waysOf) Traits() shield.Traits { return shield.Traits{MaxAttempts: int(n), Blocks: n > 1} }
func (n waysOf) String() string        { return fmt.Sprintf("Ways(%d)", n) }

func TestUse(t *testing.T) {
	t.Parallel()
	for ways, want := range map[waysOf]error{0: errFatal, 1: errDown, 3: errDown} {
		inner := &scores{}
		w := &script{ends: []error{errDown}}
		err := build(t, shield.Use(ways), shield.Use(inner)).Do(t.Context(), w.run)
		if !errors.Is(err, want) || w.ran != int(ways) || inner.losses != int(ways) {
			t.Errorf("%v: %v after %d runs", ways, err, w.ran)
		}
	}
	s := build(t, shield.Use(waysOf(3)), shield.Retry{Max: 1})
	if got := s.Traits(); got != (shield.Traits{MaxAttempts: 6, Blocks: true}) {
		t.Errorf("%+v", got)
	}
	if s.String() != "test: Ways(3) > Retry(1, 250ms x2 <=30s, equal jitter)" {
		t.Error(s)
	}
}

// A caller who has gone by the time the work ends is the reason, whoever was first.
func TestTimeoutYieldsToTheCallersCancel(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(20*time.Millisecond, cancel)
		err := build(t, shield.Timeout{After: 10 * time.Millisecond}).Do(ctx, func(context.Context) error {
			time.Sleep(30 * time.Millisecond)
			return errDown
		})
		if err != errDown { //nolint:errorlint // the very same
			t.Error(err)
		}
	})
}
