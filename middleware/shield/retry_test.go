package shield_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

func TestRetry(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	wait := shield.Constant(100 * ms)
	negative := shield.OnReply("negative", func(_ context.Context, n int) bool { return n < 0 })
	down := []act{{err: errDown}}
	type want struct {
		reply int
		err   error
		took  time.Duration
		runs  int32
	}
	for name, c := range map[string]struct {
		layers []shield.Layer
		within time.Duration
		acts   []act
		want   want
	}{
		"none":                         {[]shield.Layer{shield.Retry{Max: shield.None}}, 0, down, want{0, errDown, 0, 1}},
		"default is three":             {[]shield.Layer{shield.Retry{Backoff: wait}}, 0, down, want{0, errDown, 300 * ms, 4}},
		"wish instead of the backoff":  {[]shield.Layer{shield.Retry{Max: 1, Backoff: shield.Exponential(time.Second)}}, 0, []act{{err: pushed{delay: 40 * ms}}, {reply: 1}}, want{1, nil, 40 * ms, 2}},
		"wish of nothing":              {[]shield.Layer{shield.Retry{Max: 1, Backoff: wait}}, 0, []act{{err: pushed{}}, {reply: 1}}, want{1, nil, 0, 2}},
		"wish capped by the backoff":   {[]shield.Layer{shield.Retry{Max: 1, Backoff: wait}}, 0, []act{{err: pushed{delay: time.Hour}}, {reply: 1}}, want{1, nil, 100 * ms, 2}},
		"wish capped by MaxDelay":      {[]shield.Layer{shield.Retry{Max: 1, MaxDelay: 7 * ms}}, 0, []act{{err: pushed{delay: time.Hour}}, {reply: 1}}, want{1, nil, 7 * ms, 2}},
		"backoff capped by MaxDelay":   {[]shield.Layer{shield.Retry{Max: 1, MaxDelay: 7 * ms, Backoff: wait}}, 0, down, want{0, errDown, 7 * ms, 2}},
		"stop":                         {[]shield.Layer{shield.Retry{Backoff: wait}}, 0, []act{{err: pushed{stop: true}}}, want{0, pushed{stop: true}, 0, 1}},
		"stop ignored":                 {[]shield.Layer{shield.Retry{Max: 1, Backoff: wait, IgnorePushback: true}}, 0, []act{{err: pushed{stop: true}}, {reply: 1}}, want{1, nil, 100 * ms, 2}},
		"MaxDuration":                  {[]shield.Layer{shield.Retry{Max: shield.Forever, Backoff: wait, MaxDuration: 250 * ms}}, 0, down, want{0, errDown, 200 * ms, 3}},
		"Floor":                        {[]shield.Layer{shield.Retry{Backoff: wait, Floor: 50 * ms}}, 249 * ms, down, want{0, errDown, 100 * ms, 2}},
		"Floor just fits":              {[]shield.Layer{shield.Retry{Backoff: wait, Floor: 50 * ms}}, 250 * ms, down, want{0, errDown, 200 * ms, 3}},
		"Forever with a deadline":      {[]shield.Layer{shield.Retry{Max: shield.Forever, Backoff: wait}}, time.Second, down, want{0, errDown, 900 * ms, 10}},
		"error that is not the clause": {[]shield.Layer{shield.On(transient()), shield.Retry{}}, 0, []act{{err: errFatal}}, want{0, errFatal, 0, 1}},
		"reply":                        {[]shield.Layer{shield.On(negative), shield.Retry{Max: 1, Backoff: wait}}, 0, []act{{reply: -1}, {reply: 5}}, want{5, nil, 100 * ms, 2}},
		"last reply is the result":     {[]shield.Layer{shield.On(negative), shield.Retry{Max: 1, Backoff: wait}}, 0, []act{{reply: -1}, {reply: -2}}, want{-2, nil, 100 * ms, 2}},
		"replies alone":                {[]shield.Layer{shield.On(negative), shield.Retry{Backoff: wait}}, 0, down, want{0, errDown, 0, 1}},
		"any of them":                  {[]shield.Layer{shield.On(shield.Any(negative, nil)), shield.Retry{Max: 2, Backoff: wait}}, 0, []act{{reply: -1}, {err: errDown}, {reply: 5}}, want{5, nil, 200 * ms, 3}},
		"a nested shield's own clause": {[]shield.Layer{shield.On(transient()), build(t, shield.Retry{Max: 1, Backoff: wait})}, 0, []act{{err: errFatal}}, want{0, errFatal, 100 * ms, 2}},
		"which leaves ours":            {[]shield.Layer{build(t, shield.On(negative), shield.Retry{Max: 1, Backoff: wait}), shield.Retry{Max: 1, Backoff: wait}}, 0, []act{{reply: -1}, {err: errDown}, {reply: 5}}, want{5, nil, 200 * ms, 3}},
		"until the next On":            {[]shield.Layer{shield.On(negative), shield.Retry{Max: 1, Backoff: wait}, shield.On(nil), shield.Retry{Max: 1, Backoff: wait}}, 0, down, want{0, errDown, 100 * ms, 2}},
		"empty budget":                 {[]shield.Layer{shield.Retry{Budget: empty(t)}}, 0, down, want{0, errDown, 0, 1}},
		"refusals are not retried":     {[]shield.Layer{shield.Retry{Backoff: wait}}, 0, []act{{err: &refusal}}, want{0, &refusal, 0, 1}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				if c.within > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.within)
				}
				defer cancel()
				p, began := &play{acts: c.acts}, time.Now()
				var got want
				got.reply, got.err = p.call(ctx, build(t, c.layers...))
				got.took, got.runs = time.Since(began), p.runs.Load()
				if got != c.want {
					t.Errorf("got %+v\nwant %+v", got, c.want)
				}
			})
		})
	}
}

var refusal = shield.Rejected{Reason: shield.RateLimited}

// scores is a layer that hears of results, as a breaker does.
type scores struct{ wins, losses int }

func (s *scores) Handle(ctx context.Context, next func(context.Context) error) error {
	err := next(ctx)
	if err != nil {
		s.losses++
	} else {
		s.wins++
	}
	return err
}
func (s *scores) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1, Stateful: true} }
func (s *scores) String() string        { return "Scores" }

// B08: an outer layer sees one result of a call, an inner one each attempt's.
func TestCaseB08OrderOfRetryAndBreaker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		outer, inner := &scores{}, &scores{}
		s := build(t, shield.Use(outer), shield.Retry{Backoff: shield.Constant(time.Millisecond)}, shield.Use(inner))
		w := &script{ends: []error{errDown, errDown, nil}}
		if err := s.Do(t.Context(), w.run); err != nil {
			t.Fatal(err)
		}
		if *outer != (scores{1, 0}) || *inner != (scores{1, 2}) {
			t.Errorf("outer %+v, inner %+v", *outer, *inner)
		}
	})
}

func TestBackoffRanges(t *testing.T) {
	const s, high = time.Second, 30 * time.Second
	for _, c := range []struct {
		backoff   shield.Backoff
		try       shield.Try
		from, end time.Duration
	}{
		{shield.Constant(s), shield.Try{Retry: 9}, s, s},
		{shield.Exponential(s), shield.Try{Retry: 3}, 2 * s, 6 * s},
		{shield.Exponential(s), shield.Try{Retry: math.MaxInt32}, high / 2, high * 3 / 2},
		{shield.Linear(s), shield.Try{Retry: 3}, s * 3 / 2, s * 9 / 2},
		{shield.Curve{Base: s, Factor: 3, Jitter: shield.NoJitter}, shield.Try{Retry: 3}, 9 * s, 9 * s},
		{shield.Curve{Base: s, Factor: 2, Jitter: shield.FullJitter}, shield.Try{Retry: 2}, 0, 2 * s},
		{shield.Curve{Base: s, Jitter: shield.DecorrelatedJitter}, shield.Try{Retry: 2, Previous: 4 * s}, s, 12 * s},
		{shield.Curve{Base: s, Max: 5 * s, Jitter: shield.DecorrelatedJitter}, shield.Try{Retry: 2, Previous: 4 * s}, s, 5 * s},
		{shield.Curve{}, shield.Try{Retry: 1}, 0, 0},
		{shield.Curve{Base: 5 * s, Max: s, Jitter: shield.DecorrelatedJitter}, shield.Try{Retry: 1}, s, s},
		{shield.Curve{Base: 5 * s, Max: s, Jitter: shield.NoJitter}, shield.Try{Retry: 1}, s, s},
	} {
		t.Run(fmt.Sprint(c.backoff, c.try.Retry), func(t *testing.T) {
			low, top := time.Duration(1<<62), time.Duration(-1)
			for range 2000 {
				d := c.backoff.Delay(c.try)
				low, top = min(low, d), max(top, d)
			}
			if span := (c.end - c.from) / 20; low < c.from || low > c.from+span || top > c.end || top < c.end-span {
				t.Errorf("%v to %v, want %v to %v", low, top, c.from, c.end)
			}
		})
	}
}

func TestRetryAfterAPanicGivesBackItsShare(t *testing.T) {
	t.Parallel()
	share := shield.NewShare(1, 1)
	s := build(t, shield.Retry{Backoff: shield.Constant(0), Budget: share})
	for broken := range 2 { // in the first attempt, in the second
		runs := 0
		func() {
			defer func() { _ = recover() }()
			_ = s.Do(t.Context(), func(context.Context) error {
				if runs++; runs > broken {
					panic("broken")
				}
				return errDown
			})
		}()
		if left := s.Snapshot().Layers[0].Tokens; left != 1 {
			t.Errorf("run %d: %v left", broken, left)
		}
	}
	if err := s.Do(t.Context(), func(context.Context) error { return errDown }); !errors.Is(err, errDown) {
		t.Error(err)
	}
	if left := s.Snapshot().Layers[0].Tokens; left != 1 {
		t.Errorf("%v left", left)
	}
}
