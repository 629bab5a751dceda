package shield_test

import (
	"context"
	"errors"
	"math"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/materpc/materpc/middleware/shield"
)

// menu makes layers of bytes, with numbers that like to be extreme.
type menu struct{ data []byte }

func (m *menu) byte() byte {
	if len(m.data) == 0 {
		return 0
	}
	b := m.data[0]
	m.data = m.data[1:]
	return b
}

func (m *menu) int() int {
	numbers := [...]int{0, 1, 2, 3, 10, 1000, -1, -2, math.MaxInt32, math.MinInt32, math.MaxInt, math.MaxInt - 1, math.MinInt}
	return numbers[int(m.byte())%len(numbers)]
}

func (m *menu) duration() time.Duration {
	numbers := [...]time.Duration{0, 1, time.Millisecond, time.Second, time.Hour, -1, -2, 1 << 31, 1 << 53, math.MaxInt64, math.MaxInt64 - 1, math.MinInt64}
	return numbers[int(m.byte())%len(numbers)]
}

func (m *menu) float() float64 {
	numbers := [...]float64{0, 0.001, 0.5, 1, 2, 1000, -1, 1 << 53, math.MaxFloat64, math.SmallestNonzeroFloat64, nan, math.Inf(1), math.Inf(-1)}
	return numbers[int(m.byte())%len(numbers)]
}

func (m *menu) backoff() shield.Backoff {
	if m.byte()%4 == 0 {
		return nil
	}
	return shield.Curve{Base: m.duration(), Factor: m.float(), Step: m.duration(), Max: m.duration(), Jitter: shield.Jitter(m.byte() % 6)}
}

func (m *menu) budget() *shield.Budget {
	switch m.byte() % 4 {
	case 1:
		return shield.NewBudget(m.int(), m.float())
	case 2:
		return shield.NewAllowance(m.int(), m.duration())
	case 3:
		return shield.NewShare(m.float(), m.int())
	}
	return nil
}

func (m *menu) layer(depth int) shield.Layer {
	switch m.byte() % 11 {
	case 0:
		return shield.Timeout{After: m.duration()}
	case 1:
		return shield.Retry{Max: m.int(), Backoff: m.backoff(), MaxDelay: m.duration(), Floor: m.duration(), MaxDuration: m.duration(), Budget: m.budget()}
	case 2:
		return shield.Hedge{Max: m.int(), Delay: m.duration(), Budget: m.budget()}
	case 3:
		return shield.Chaos{Rate: m.float(), Latency: m.duration(), Seed: 1}
	case 4:
		return shield.Fallback(m.int())
	case 5:
		return shield.On(transient())
	case 6:
		return shield.Breaker{Failures: m.int(), Ratio: m.float(), MinCalls: m.int(), Window: m.duration(), Open: m.duration(), OpenBackoff: m.backoff(), Probes: m.int(), SlowAfter: m.duration(), SlowRatio: m.float()}
	case 7:
		return shield.Use(waysOf(m.byte() % 4))
	case 8:
		if s, err := shield.New("inner", m.layers(depth+1)...); err == nil {
			return s
		}
	case 9:
		return shield.Concurrency{}
	case 10:
		return shield.Rate{}
	}
	return nil
}

func (m *menu) layers(depth int) (layers []shield.Layer) {
	if depth > 3 {
		return nil
	}
	for n := m.byte() % 6; n > 0; n-- {
		layers = append(layers, m.layer(depth))
	}
	return layers
}

func FuzzNew(f *testing.F) {
	for kind := range byte(11) {
		f.Add([]byte{kind})
		for fill := range byte(13) {
			seed := []byte{1, 2, 3, kind}
			for range 24 {
				seed = append(seed, fill)
			}
			f.Add(seed)
		}
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		synctest.Test(t, func(t *testing.T) { fuzzOne(t, data) })
	})
}

// fuzzOne expects faults, or a shield whose call ends: by itself, or soon after
// its caller has gone.
func fuzzOne(t *testing.T, data []byte) {
	m := &menu{data: data}
	fails := m.byte()%8 + 1
	ctx, cancel := context.WithTimeout(t.Context(), 100*365*24*time.Hour)
	defer cancel()
	var decisions atomic.Int32
	s, err := shield.New("fuzz", append(m.layers(0), shield.Observe(func(shield.Event) {
		if decisions.Add(1) > 1000 {
			cancel() // without a bound, as the layers say
		}
	}))...)
	if err != nil {
		var fault *shield.ConfigError
		if !errors.As(err, &fault) || fault.Remedy == "" {
			t.Fatalf("%v: a fault without a remedy", err)
		}
		return
	}
	runs := &atomic.Int32{}
	_, _ = shield.Call(ctx, s, runs, func(_ context.Context, runs *atomic.Int32) (int, error) {
		if runs.Add(1) > int32(fails) {
			return 1, nil
		}
		return 0, errDown
	})
	_, _, _, _ = s.String(), s.Traits(), s.Snapshot(), s.Lint(false)
	cancel()
	synctest.Wait()
}
