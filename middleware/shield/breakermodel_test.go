package shield

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"
)

// modelBreaker is the breaker as simply as it can be told, for one caller at a
// time.
type modelBreaker struct {
	config     Breaker
	generation int
	mode       string
	until      int64
	row        int
	results    []modelResult
	out        int
	ended      tally
}

type modelResult struct {
	at           int64
	failed, slow bool
}

func (m *modelBreaker) turn(mode string) {
	*m = modelBreaker{config: m.config, generation: m.generation + 1, mode: mode}
}

func (m *modelBreaker) enter(now int64) bool {
	if m.mode == "open" && now >= m.until {
		m.turn("half-open")
	}
	switch m.mode {
	case "closed":
		return true
	case "half-open":
		if m.out < m.config.Probes {
			m.out++
			return true
		}
	}
	return false
}

func (m *modelBreaker) over(t tally) bool {
	share := func(n int) float64 { return float64(n) / float64(t.calls) }
	c := m.config
	return c.Ratio > 0 && share(t.failures) >= c.Ratio || c.SlowRatio > 0 && share(t.slow) >= c.SlowRatio
}

func (m *modelBreaker) exit(generation int, began, now int64, kind endKind) {
	if generation != m.generation {
		return
	}
	c := m.config
	failure := kind == failed || kind == panicked
	slow := c.SlowAfter > 0 && now-began > int64(c.SlowAfter)
	if c.SlowRatio == 0 && slow {
		failure, slow = true, false
	}
	trip := false
	switch {
	case kind == ignored && m.mode == "half-open":
		m.out--
		return
	case kind == ignored:
		return
	case m.mode == "half-open":
		m.ended.calls++
		m.ended.failures += number(failure)
		m.ended.slow += number(slow)
		done := m.ended.calls == c.Probes
		if trip = failure && c.Failures > 0 || done && m.over(m.ended); !trip && done {
			m.turn("closed")
		}
	default:
		m.results = append(m.results, modelResult{now, failure, slow})
		m.row = (m.row + 1) * number(failure)
		trip = c.Failures > 0 && m.row >= c.Failures
		if sum := m.sum(now); (failure || slow) && sum.calls >= c.MinCalls {
			trip = trip || m.over(sum)
		}
	}
	if trip {
		m.turn("open")
		m.until = now + int64(c.Open)
	}
}

func (m *modelBreaker) sum(now int64) (t tally) {
	width := int64(m.config.Window) / windowBuckets
	for _, r := range m.results {
		if r.at/width > now/width-windowBuckets {
			t.calls++
			t.failures += number(r.failed)
			t.slow += number(r.slow)
		}
	}
	return t
}

// TestBreakerAgainstModel runs random sequences of calls that overlap.
func TestBreakerAgainstModel(t *testing.T) {
	t.Parallel()
	configs := []Breaker{
		{Failures: 2, Probes: 1},
		{Failures: 3, Probes: 3},
		{Ratio: 0.5, MinCalls: 4, Probes: 2},
		{Ratio: 0.3, MinCalls: 3, Probes: 3, SlowAfter: 20 * time.Millisecond},
		{Ratio: 0.9, MinCalls: 3, SlowRatio: 0.4, SlowAfter: 20 * time.Millisecond, Probes: 4},
		{Failures: 4, MinCalls: 3, SlowRatio: 0.4, SlowAfter: 20 * time.Millisecond, Probes: 2},
	}
	for i, config := range configs {
		config.Open, config.Window = 100*time.Millisecond, 300*time.Millisecond
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(100) {
				compareBreaker(t, config, seed)
			}
		})
	}
}

func compareBreaker(t *testing.T, config Breaker, seed uint64) {
	type call struct {
		pass       ticket
		generation int
		began      int64
	}
	random := rand.New(rand.NewPCG(seed, 2))
	b := newBreaker(config)
	m := &modelBreaker{config: b.config, mode: "closed"}
	var out []call
	now := int64(time.Hour)
	seen := map[string]bool{}
	for step := range 600 {
		now += random.Int64N(int64(15 * time.Millisecond))
		switch n := random.IntN(100); {
		case n < 50:
			pass, err := b.enter(context.Background(), now)
			if want := m.enter(now); want != (err == nil) {
				t.Fatalf("seed %d step %d: admitted %v, want %v", seed, step, err == nil, want)
			} else if want {
				out = append(out, call{pass, m.generation, now})
			}
		case n < 98 && len(out) > 0:
			i := random.IntN(len(out))
			kind := []endKind{succeeded, succeeded, failed, failed, panicked, ignored}[random.IntN(6)]
			b.exit(out[i].pass, end{kind: kind, now: now})
			m.exit(out[i].generation, out[i].began, now, kind)
			out = slices.Delete(out, i, i+1)
		case n == 98:
			b.isolate("")
			m.turn("isolated")
		case n == 99:
			b.reset()
			m.turn("closed")
		}
		want := m.mode
		if want == "open" && now >= m.until {
			want = "half-open"
		}
		seen[want] = true
		if got := b.state(now).Breaker; got != want {
			t.Fatalf("seed %d step %d: %s, want %s", seed, step, got, want)
		}
	}
	if seed == 0 && len(seen) < 3 {
		t.Errorf("the sequence saw %v only", seen)
	}
}
