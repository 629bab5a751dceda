package shield_test

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func TestIsolateUntilReset(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		inner := build(t, shield.Breaker{})
		s := build(t, inner) // shares its breaker
		w := &script{ends: []error{nil}}
		if err := s.Isolate("release 7 is rolled back"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		for _, shared := range []*shield.Shield{s, inner} {
			err := shared.Do(t.Context(), w.run)
			if !errors.Is(err, &shield.Rejected{Reason: shield.Isolated}) || !strings.Contains(err.Error(), "isolated (release 7 is rolled back)") {
				t.Errorf("%v", err)
			}
		}
		if got := s.Snapshot().Layers[0]; got.Breaker != "isolated" || got.Note != "release 7 is rolled back" {
			t.Errorf("%+v", got)
		}
		s.Reset()
		if err := s.Do(t.Context(), w.run); err != nil || w.ran != 1 {
			t.Errorf("%v after %d runs", err, w.ran)
		}
		if got := s.Snapshot().Layers[0]; got.Breaker != "closed" || got.Note != "" {
			t.Errorf("%+v", got)
		}
	})
}

func TestIsolateNeedsABreaker(t *testing.T) {
	t.Parallel()
	if err := build(t, shield.Rate{}).Isolate("x"); err == nil || !strings.Contains(err.Error(), "no Breaker") {
		t.Error(err)
	}
}

// B08: an outer breaker sees one result a call, an inner one each attempt, and
// the refusal of an open one is not retried.
func TestCaseB08BreakerAndRetry(t *testing.T) {
	t.Parallel()
	retry := shield.Retry{Max: 3, Backoff: shield.Constant(10 * time.Millisecond)}
	breaker := shield.Breaker{Failures: 2}
	synctest.Test(t, func(t *testing.T) {
		outer := build(t, breaker, retry)
		w := &script{ends: []error{errDown, errDown, nil}}
		if err := outer.Do(t.Context(), w.run); err != nil || w.ran != 3 {
			t.Errorf("outside: %v after %d runs", err, w.ran)
		}
		if got := outer.Snapshot().Layers[0]; got.Breaker != "closed" || got.Failures != 0 {
			t.Errorf("outside: %+v", got)
		}
		w = &script{ends: []error{errDown, errDown, nil}}
		inside := build(t, retry, breaker)
		if err := inside.Do(t.Context(), w.run); !errors.Is(err, &shield.Rejected{Reason: shield.BreakerOpen}) || w.ran != 2 {
			t.Errorf("inside: %v after %d runs", err, w.ran)
		}
		began := time.Now()
		if err := inside.Do(t.Context(), w.run); !errors.Is(err, &shield.Rejected{Reason: shield.BreakerOpen}) || time.Since(began) != 0 || w.ran != 2 {
			t.Errorf("open: %v after %v and %d runs", err, time.Since(began), w.ran)
		}
	})
}
