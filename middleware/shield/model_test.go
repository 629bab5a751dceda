package shield_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

// model is what layers should do, told in the plainest way: no stack of frames,
// no contexts, time as a number.
type model struct {
	acts []act
	runs int
	now  time.Duration
}

// outcome of a model's run; expired says whose time was over.
type outcome struct {
	reply int
	kind  string // "ok", "down", "timeout"
}

// run returns the outcome of layers, of which the nearest deadline is until.
func (m *model) run(layers []shield.Layer, until time.Duration) outcome {
	if len(layers) == 0 {
		a := m.acts[min(m.runs, len(m.acts)-1)]
		m.runs++
		switch {
		case m.now+a.takes > until:
			m.now = max(m.now, until)
			return outcome{0, "ended"}
		case a.err != nil:
			m.now += a.takes
			return outcome{0, "down"}
		}
		m.now += a.takes
		return outcome{a.reply, "ok"}
	}
	switch l := layers[0].(type) {
	case shield.Timeout:
		mine := m.now + l.After
		o := m.run(layers[1:], min(mine, until))
		if o.kind != "ok" && mine < until && m.now >= mine && o.kind != "timeout" {
			o.kind = "timeout"
		}
		return o
	case shield.Retry:
		for retry := 0; ; retry++ {
			o := m.run(layers[1:], until)
			wait := l.Backoff.Delay(shield.Try{Retry: retry + 1})
			if o.kind == "ok" || retry >= l.Max || m.now >= until || until-m.now < wait+time.Millisecond {
				return o
			}
			m.now += wait
		}
	default:
		o := m.run(layers[1:], until)
		if o.kind != "ok" && m.now < until {
			o = outcome{-1, "ok"}
		}
		return o
	}
}

// Times of work end on odd microseconds, of layers on whole milliseconds, so that
// no two things happen at once.
func TestModelOfNestedLayers(t *testing.T) {
	t.Parallel()
	const ms = time.Millisecond
	for seed := range uint64(3000) {
		r := rand.New(rand.NewPCG(seed, 1)) //nolint:gosec // repeatable
		acts := make([]act, 1+r.IntN(6))
		for i := range acts {
			acts[i] = act{takes: time.Duration(1+2*r.IntN(15))*ms + 7*time.Microsecond, reply: i + 1}
			if r.IntN(3) > 0 {
				acts[i].err = errDown
			}
		}
		var layers []shield.Layer
		clauses := 0
		var plain []shield.Layer
		for range r.IntN(6) {
			var l shield.Layer
			switch r.IntN(5) {
			case 0, 1:
				l = shield.Timeout{After: time.Duration(1+r.IntN(60)) * ms}
			case 2, 3:
				l = shield.Retry{Max: 1 + r.IntN(3), Backoff: shield.Constant(time.Duration(r.IntN(9)) * ms)}
			default:
				clauses++ // of its own, or New refuses it under a Retry
				l = shield.Fallback(-1)
				layers = append(layers, shield.On(shield.Match(fmt.Sprint(clauses), func(context.Context, error) bool { return true })))
			}
			layers, plain = append(layers, l), append(plain, l)
		}
		synctest.Test(t, func(t *testing.T) {
			p, began := &play{acts: acts}, time.Now()
			s := build(t, layers...)
			reply, err := p.call(t.Context(), s)
			got := outcome{reply, "ok"}
			var timedOut *shield.TimedOut
			switch {
			case errors.As(err, &timedOut):
				got = outcome{0, "timeout"}
			case err != nil:
				got = outcome{0, "down"}
			}
			m := &model{acts: acts}
			want := m.run(plain, 1<<62)
			if got != want || int(p.runs.Load()) != m.runs || time.Since(began) != m.now {
				t.Fatalf("seed %d, %v over %+v\ngot  %v, %d runs, %v\nwant %v, %d runs, %v",
					seed, s, acts, got, p.runs.Load(), time.Since(began), want, m.runs, m.now)
			}
		})
	}
}
