package shield_test

import (
	"context"
	"testing"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

// Code of users that runs on the way out may panic too: what the layers hold is
// given back all the same.
func TestPanicOfAClauseOrBackoffLeaksNothing(t *testing.T) {
	t.Parallel()
	broken := shield.On(shield.Match("broken", func(context.Context, error) bool { panic("clause") }))
	budget := shield.NewShare(1, 1)
	for name, layers := range map[string][]shield.Layer{
		"clause of a limit": {broken, shield.Concurrency{Max: 1}},
		"clause of a retry": {shield.Concurrency{Max: 1}, broken, shield.Retry{Budget: budget}},
		"backoff":           {shield.Concurrency{Max: 1}, shield.Retry{Budget: budget, Backoff: panicking{}}},
	} {
		s := build(t, layers...)
		for range 3 {
			func() {
				defer func() { _ = recover() }()
				_ = s.Do(t.Context(), func(context.Context) error { return errDown })
			}()
		}
		for _, layer := range s.Snapshot().Layers {
			if layer.InFlight != 0 || layer.Kind == "retry" && layer.Tokens != 1 {
				t.Errorf("%s: %+v", name, layer)
			}
		}
	}
}

func TestPanicOfAClauseAtExitLeaksNothing(t *testing.T) {
	t.Parallel()
	broken := shield.On(shield.Match("broken", func(context.Context, error) bool { panic("clause") }))
	s := build(t, broken, shield.Concurrency{Max: 1}, shield.Concurrency{Max: 2})
	pass, err := s.Enter(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	func() {
		defer func() { _ = recover() }()
		_ = pass.Exit(errDown)
	}()
	for _, layer := range s.Snapshot().Layers {
		if layer.InFlight != 0 {
			t.Errorf("%+v", layer)
		}
	}
}

type panicking struct{}

func (panicking) Delay(shield.Try) time.Duration { panic("backoff") }
func (panicking) String() string                 { return "panicking" }

func TestBreakerAndThrottleDoNotBlock(t *testing.T) {
	t.Parallel()
	if got := build(t, shield.Breaker{}, shield.Throttle{}).Traits(); got.Blocks {
		t.Errorf("%+v", got)
	}
}
