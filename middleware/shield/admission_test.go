package shield_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func TestEnterAndExit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := build(t, shield.Concurrency{Max: 1}, shield.Timeout{After: time.Second}, shield.Breaker{Failures: 2})
		inFlight := func() int { return s.Snapshot().Layers[0].InFlight }
		p, err := s.Enter(t.Context())
		if err != nil || inFlight() != 1 {
			t.Fatal(err, inFlight())
		}
		if _, err := s.Enter(t.Context()); !errors.Is(err, &shield.Rejected{Reason: shield.ConcurrencyLimited}) {
			t.Error(err)
		}
		<-p.Context().Done()
		var timedOut *shield.TimedOut
		if err := p.Exit(p.Context().Err()); !errors.As(err, &timedOut) || inFlight() != 0 {
			t.Error(err, inFlight())
		}
		if err := p.Exit(errDown); err != errDown || inFlight() != 0 { //nolint:errorlint // the very same
			t.Error("a second Exit did something:", err, inFlight())
		}
		if f := s.Snapshot().Layers[2].Failures; f != 1 {
			t.Errorf("%d failures counted", f)
		}
		p, _ = s.Enter(t.Context())
		_ = p.Exit(errDown)
		if p, err := s.Enter(t.Context()); !errors.Is(err, &shield.Rejected{Reason: shield.BreakerOpen}) || inFlight() != 0 {
			t.Error("a refusal further in kept the slot:", err, inFlight())
		} else if _ = p.Exit(nil); inFlight() != 0 {
			t.Error("Exit of a refused Enter gave back what it never had")
		}
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Enter(ended); !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	})
}

func TestEnterRefusesWhatNeedsTheWork(t *testing.T) {
	t.Parallel()
	for _, layer := range []shield.Layer{shield.Retry{}, shield.Hedge{}, shield.Fallback(1), shield.Use(waysOf(1))} {
		s := build(t, shield.Concurrency{Max: 1}, layer)
		if _, err := s.Enter(t.Context()); err == nil || !strings.Contains(err.Error(), "cannot be entered") || s.Snapshot().Layers[0].InFlight != 0 {
			t.Errorf("%v: %v", s, err)
		}
	}
	if _, err := build(t, shield.Retry{Max: shield.None}).Enter(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestLint(t *testing.T) {
	total, each := shield.Timeout{After: time.Minute}, shield.Timeout{After: time.Second}
	one := shield.Retry{Max: shield.None}
	for warning, c := range map[string]struct{ bad, good []shield.Layer }{
		"no Timeout under it":             {[]shield.Layer{total, shield.Retry{}}, []shield.Layer{total, shield.Retry{}, each}},
		"held while it waits":             {[]shield.Layer{shield.Concurrency{}, shield.Retry{}, each}, []shield.Layer{shield.Retry{}, shield.Concurrency{}, each}},
		"held while it waits: put it":     {[]shield.Layer{shield.Rate{}, shield.Retry{}, each}, []shield.Layer{shield.Rate{}, one}},
		"attempts go on that the breaker": {[]shield.Layer{shield.Hedge{}, shield.Breaker{}}, []shield.Layer{shield.Breaker{}, shield.Hedge{}}},
		"each attempt takes a permit":     {[]shield.Layer{shield.Hedge{}, shield.Rate{}}, []shield.Layer{shield.Rate{}, shield.Hedge{}}},
		"ends before the first wait":      {[]shield.Layer{each, shield.Retry{Backoff: shield.Constant(time.Minute)}, each}, []shield.Layer{total, shield.Retry{Backoff: shield.Constant(time.Second)}, each}},
	} {
		t.Run(warning, func(t *testing.T) {
			found := func(layers []shield.Layer) []string { return build(t, layers...).Lint(true) }
			if bad := found(c.bad); len(bad) != 1 || !strings.Contains(bad[0], warning) {
				t.Errorf("%q", bad)
			}
			if good := found(c.good); len(good) != 0 {
				t.Errorf("%q", good)
			}
		})
	}
	for _, layers := range [][]shield.Layer{{shield.Retry{}, each}, {shield.Hedge{}}, {shield.Use(waysOf(2))}} {
		s := build(t, layers...)
		if found := s.Lint(false); len(found) != 1 || !strings.Contains(found[0], "not marked idempotent") || len(s.Lint(true)) != 0 {
			t.Errorf("%v: %q", s, found)
		}
	}
	if found := build(t, one, shield.Breaker{}, each).Lint(false); len(found) != 0 {
		t.Errorf("%q", found)
	}
}

// Each field of each layer that can be wrong is named with its value.
func TestConfigErrorOfEachField(t *testing.T) {
	t.Parallel()
	for want, layer := range map[string]shield.Layer{
		"Timeout: After is -1ns":            shield.Timeout{After: -1},
		"Retry: Max is -2":                  shield.Retry{Max: -2},
		"Retry: MaxDelay is -1ns":           shield.Retry{MaxDelay: -1},
		"Retry: Floor is -1ns":              shield.Retry{Floor: -1},
		"Retry: MaxDuration is -1ns":        shield.Retry{MaxDuration: -1},
		"Retry: Budget is 0 tokens":         shield.Retry{Budget: shield.NewBudget(0, 1)},
		"Retry: Backoff.Base is -1ns":       shield.Retry{Backoff: shield.Curve{Base: -1}},
		"Retry: Backoff.Step is -1ns":       shield.Retry{Backoff: shield.Curve{Step: -1}},
		"Retry: Backoff.Max is -1ns":        shield.Retry{Backoff: shield.Curve{Max: -1}},
		"Retry: Backoff.Factor is NaN":      shield.Retry{Backoff: shield.Curve{Factor: nan}},
		"Retry: Backoff.Factor is 0.5":      shield.Retry{Backoff: shield.Curve{Factor: 0.5}},
		"Retry: Backoff.Jitter is 9":        shield.Retry{Backoff: shield.Curve{Jitter: 9}},
		"Hedge: Max is -1":                  shield.Hedge{Max: -1},
		"give at most 1000 with AtOnce":     shield.Hedge{Max: 1001, Delay: shield.AtOnce},
		"Hedge: Delay is -2ns":              shield.Hedge{Delay: -2},
		"Hedge: Budget is 0 tokens":         shield.Hedge{Budget: shield.NewBudget(0, 1)},
		"Chaos: Rate is NaN":                shield.Chaos{Rate: nan},
		"Chaos: Rate is 1.5":                shield.Chaos{Rate: 1.5},
		"Chaos: Latency is -1ns":            shield.Chaos{Latency: -1},
		"Observe: fn is <nil>":              shield.Observe(nil),
		"Use: strategy is <nil>":            shield.Use(nil),
		"FallbackTo: fn is <nil>":           shield.FallbackTo[int](nil),
		"Breaker: Failures is -1":           shield.Breaker{Failures: -1},
		"Breaker: Ratio is NaN":             shield.Breaker{Ratio: nan},
		"Breaker: OpenBackoff.Base is -1ns": shield.Breaker{OpenBackoff: shield.Curve{Base: -1}},
		"<nil>":                             nil,
		"*shield.Shield":                    (*shield.Shield)(nil),
		"shares its state with":             build(t, shieldTwice(t)),
	} {
		layers := []shield.Layer{shield.Chaos{}, layer}
		if strings.HasPrefix(want, "shares") {
			layers = append(layers, layer)
		}
		_, err := shield.New("x", layers...)
		var fault *shield.ConfigError
		if !errors.As(err, &fault) || !strings.Contains(err.Error(), want) || fault.Shield != "x" || fault.Remedy == "" {
			t.Errorf("%q is missing in %v", want, err)
		} else if len(layers) == 2 && fault.Index != 1 {
			t.Errorf("%v: index %d", err, fault.Index)
		}
	}
}

func shieldTwice(t *testing.T) *shield.Shield { return build(t, shield.Breaker{}) }

func TestStringTraitsAndSnapshot(t *testing.T) {
	t.Parallel()
	s := build(t, shield.Timeout{}, shield.On(transient()), shield.Retry{Max: 2, Budget: shield.NewBudget(10, 0.1)}, shield.Hedge{}, shield.On(nil), shield.Breaker{})
	const want = "test: Timeout(30s) > [on transient] Retry(2, 250ms x2 <=30s, equal jitter, budget 10 tokens, 0.1 each success) > Hedge(1, each 1s) > [on failures] Breaker(5 consecutive, open 15s)"
	if s.String() != want {
		t.Errorf("got  %v\nwant %s", s, want)
	}
	if got := s.Traits(); got != (shield.Traits{MaxAttempts: 6, Concurrent: true, Blocks: true, ReplacesContext: true, Stateful: true}) {
		t.Errorf("%+v", got)
	}
	if got := build(t, shield.Retry{Max: shield.Forever}, shield.Hedge{}).Traits().MaxAttempts; got != 0 {
		t.Errorf("%d attempts, want no bound", got)
	}
	state := s.Snapshot()
	kinds := make([]string, 0, len(state.Layers))
	for _, l := range state.Layers {
		kinds = append(kinds, l.Kind)
	}
	if !slices.Equal(kinds, []string{"timeout", "retry", "hedge", "breaker"}) || state.Version != 1 || state.Shield != "test" || state.Layers[1].Tokens != 10 || state.Layers[3].Breaker != "closed" {
		t.Errorf("%+v", state)
	}
	if got := fmt.Sprint(build(t)); got != "test: empty" {
		t.Error(got)
	}
}
