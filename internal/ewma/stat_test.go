package ewma_test

import (
	"math"
	"sync"
	"testing"
	"time"

	"github.com/materpc/materpc/internal/ewma"
)

const ms = int64(time.Millisecond)

func newStat() *ewma.Stat {
	s := &ewma.Stat{}
	s.Reset(0)
	return s
}

func near(t *testing.T, what string, got, want, tolerance float64) {
	t.Helper()
	if math.Abs(got-want) > tolerance {
		t.Errorf("%s: got %v, want %v +/- %v", what, got, want, tolerance)
	}
}

func TestNewStatIsUnknownAndGood(t *testing.T) {
	if got, want := newStat().Load(), (ewma.Values{Success: 1, Good: true}); got != want {
		t.Errorf("got %+v, want %+v", got, want)
	}
}

func TestColdLatencyIsTheMean(t *testing.T) {
	s := newStat()
	for i := range int64(10) {
		s.Observe(i, (i+1)*ms, true)
	}
	near(t, "mean of 1 to 10 ms", s.Load().Latency/float64(ms), 5.5, 0.01)
}

func TestLatencyFollowsTime(t *testing.T) {
	s := newStat()
	now := int64(0)
	for range 100 {
		now += 10 * ms
		s.Observe(now, 10*ms, true)
	}
	s.Observe(now+int64(ewma.Tau), 20*ms, true)
	// After one time constant the old average weighs 1/e.
	near(t, "latency in ms", s.Load().Latency/float64(ms), 20-10/math.E, 0.01)
}

func TestSuccessSteps(t *testing.T) {
	tests := []struct {
		name  string
		pause time.Duration
		want  float64 // after one failure
	}{
		{"at once", 0, 15.0 / 16},
		{"after a minute", time.Minute, 0.5},
		{"clock went back", -time.Second, 15.0 / 16},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := newStat()
			s.Observe(int64(tt.pause), -1, false)
			near(t, "success", s.Load().Success, tt.want, 0.001)
		})
	}
}

func TestFastFailureLooksNotFast(t *testing.T) {
	s := newStat()
	s.Observe(0, 20*ms, true)
	before := s.Load().Latency
	for range 50 {
		s.Observe(ms, 1000, false)
	}
	near(t, "latency after fast failures", s.Load().Latency, before, 0)
	s.Observe(int64(time.Second), int64(time.Second), false)
	if got := s.Load().Latency; got <= before {
		t.Errorf("latency after a slow failure: got %v, want more than %v", got, before)
	}
}

func TestGoodIsTheLastResult(t *testing.T) {
	s := newStat()
	for _, ok := range []bool{false, true, true, false} {
		s.Observe(0, ms, ok)
		if got := s.Load().Good; got != ok {
			t.Errorf("after a result %v: got %v", ok, got)
		}
	}
}

func TestResultsSaturate(t *testing.T) {
	s := newStat()
	for range 1 << 17 {
		s.Observe(0, 0, true)
	}
	got := s.Load()
	if got.Results != ewma.Warm || got.Latency < 1 || got.Success != 1 {
		t.Errorf("got %+v, want %d results, a known latency, success 1", got, ewma.Warm)
	}
}

func TestHugeLatencyStaysFinite(t *testing.T) {
	s := newStat()
	s.Observe(math.MaxInt64, math.MaxInt64, true)
	if got := s.Load().Latency; math.IsInf(got, 0) || got <= 0 {
		t.Errorf("latency: got %v, want finite", got)
	}
}

func TestConcurrentObserve(t *testing.T) {
	s := newStat()
	var all sync.WaitGroup
	for range 4 {
		all.Go(func() {
			for i := range int64(1000) {
				s.Observe(i, 7*ms, true)
			}
		})
	}
	all.Wait()
	near(t, "latency in ms", s.Load().Latency/float64(ms), 7, 0.001)
}
