package shield_test

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

// wrapping is a strategy that gives errors a text of its own.
type wrapping struct{ form func(error) error }

func (w wrapping) Handle(ctx context.Context, next func(context.Context) error) error {
	if err := next(ctx); err != nil {
		return w.form(err)
	}
	return nil
}
func (w wrapping) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1} }
func (w wrapping) String() string        { return "Wrapping" }

// A wish beside the error changes what layers do, and nothing that anybody sees.
func TestWished(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	wait := shield.Constant(100 * ms)
	onlyDown := shield.Match("the very error", func(_ context.Context, err error) bool { return err == errDown }) //nolint:errorlint // the very error
	inner := build(t, shield.On(onlyDown), shield.Retry{Max: 2, Backoff: wait})
	form := shield.Use(wrapping{func(err error) error { return fmt.Errorf("outer: %w", err) }})
	join := shield.Use(wrapping{func(err error) error { return errors.Join(errFatal, err) }})
	later, stop := &shield.Wished{Err: errDown, Delay: 7 * ms}, &shield.Wished{Err: errDown, Stop: true}
	final := &shield.Wished{Err: errDown, Final: true}
	for name, c := range map[string]struct {
		layers []shield.Layer
		ends   []error
		took   time.Duration
		runs   int
		bare   bool // the result is the error itself
	}{
		"delay":                    {[]shield.Layer{inner}, []error{later, nil}, 7 * ms, 2, true},
		"delay of that retry only": {[]shield.Layer{inner}, []error{later, errDown, nil}, 107 * ms, 3, true},
		"stop":                     {[]shield.Layer{inner}, []error{stop}, 0, 1, true},
		"stop of the last":         {[]shield.Layer{shield.Retry{Backoff: wait}, inner}, []error{errDown, errDown, stop}, 200 * ms, 3, true},
		"stop, outer retry":        {[]shield.Layer{shield.Retry{Backoff: wait}, inner}, []error{stop}, 0, 1, true},
		"stop, outer hedge":        {[]shield.Layer{shield.Hedge{Max: 3, Delay: shield.OnFailure}, inner}, []error{stop}, 0, 1, true},
		"stop through a strategy":  {[]shield.Layer{shield.Retry{Backoff: wait}, form}, []error{stop}, 0, 1, false},
		"stop through a join":      {[]shield.Layer{shield.Retry{Backoff: wait}, join}, []error{stop}, 0, 1, false},
		"stop inside of the error": {[]shield.Layer{shield.Retry{Backoff: wait}}, []error{fmt.Errorf("x: %w", stop)}, 0, 1, false},
		"stop ignored":             {[]shield.Layer{shield.Retry{Max: 1, Backoff: wait, IgnorePushback: true}}, []error{stop, nil}, 100 * ms, 2, true},
		"final is not ignored":     {[]shield.Layer{shield.Retry{Max: 1, Backoff: wait, IgnorePushback: true}}, []error{final}, 0, 1, true},
		"a backoff of one's own":   {[]shield.Layer{shield.Retry{Max: 1, Backoff: asWished{}, IgnorePushback: true}}, []error{later, nil}, 7 * ms, 2, true},
		"none":                     {[]shield.Layer{inner}, []error{errDown, nil}, 100 * ms, 2, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				w, began := &script{ends: c.ends}, time.Now()
				err := build(t, c.layers...).Do(t.Context(), w.run)
				if took := time.Since(began); took != c.took || w.ran != c.runs {
					t.Errorf("%v, %d runs", took, w.ran)
				}
				if last := c.ends[len(c.ends)-1]; last == nil && err != nil || c.bare && last != nil && err != errDown || last != nil && !errors.Is(err, errDown) { //nolint:errorlint // the very error
					t.Errorf("%#v", err)
				}
			})
		})
	}
}

// asWished waits as the server wishes.
type asWished struct{}

func (asWished) Delay(t shield.Try) time.Duration {
	delay, _, _ := t.Outcome.Pushback()
	return delay
}
func (asWished) String() string { return "as wished" }
