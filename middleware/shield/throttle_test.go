package shield

import (
	"math"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// load offers so many calls per second for a while, and returns which share got
// through.
func load(t *testing.T, s *throttleState, kind endKind, calls, seconds int) float64 {
	t.Helper()
	through := 0
	for range calls * seconds {
		if pass, err := s.enter(t.Context(), monotonic()); err == nil {
			through++
			s.exit(pass, ending(kind))
		} else if got := refusal(err); got != (Rejected{Reason: Throttled}) {
			t.Fatalf("%+v", got)
		}
		time.Sleep(time.Second / time.Duration(calls))
	}
	return float64(through) / float64(calls*seconds)
}

// TestCaseB04ThrottleOpensAfterRecovery.
func TestCaseB04ThrottleOpensAfterRecovery(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		config Throttle
		down   float64 // at most admitted while all fails
	}{
		{"as in the case", Throttle{K: 2, Window: 3 * time.Second, MinCalls: 20, MaxReject: 1}, 0.08},
		{"with the bound of a refusal", Throttle{K: 2}, 0.15},
		{"default", Throttle{}, 0.15},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			for seed := range uint64(2) {
				synctest.Test(t, func(t *testing.T) {
					s := newThrottle(c.config, seed)
					if got := load(t, s, failed, 1000, 2); got > c.down {
						t.Errorf("%.3f admitted while it is down", got)
					}
					var shares []float64
					for range 20 {
						shares = append(shares, load(t, s, succeeded, 1000, 1))
					}
					if shares[3] < 0.95 || shares[19] != 1 {
						t.Errorf("seed %d: admitted %.3f", seed, shares)
					}
					t.Logf("seed %d: admitted %.3f", seed, shares[:5])
				})
			}
		})
	}
}

func TestThrottleLeavesTheHealthyAlone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newThrottle(Throttle{}, 1)
		admitted(t, s, failed, 19) // fewer than MinCalls
		time.Sleep(3 * time.Second)
		for range 500 { // a third fails: calls are 1.5 times the accepted ones
			admitted(t, s, succeeded, 2)
			admitted(t, s, failed, 1)
		}
		if got := s.state(monotonic()); got.Calls != 1500 || got.Failures != 500 {
			t.Errorf("%+v", got)
		}
	})
}

func TestThrottleShare(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newThrottle(Throttle{K: 2, MinCalls: 1}, 1)
		for range 9 { // 99 calls, 27 accepted
			for kind, n := range map[endKind]int{failed: 7, panicked: 1, succeeded: 3, ignored: 5} {
				for range n {
					s.exit(ticket{}, ending(kind))
				}
			}
		}
		if got, want := s.refuses(monotonic()), (99-2*27)/100.0; got != want {
			t.Errorf("refuses %v, want %v", got, want)
		}
		if got := s.refuses(monotonic() + int64(time.Hour)); got != 0 {
			t.Errorf("refuses %v of nothing", got)
		}
		for range 10000 {
			s.exit(ticket{}, ending(failed))
		}
		if got := s.refuses(monotonic()); got != 0.9 {
			t.Errorf("refuses %v, want MaxReject", got)
		}
		s.reset()
		s.exit(ticket{}, ending(failed))
		if got := s.state(monotonic()); got.Calls != 1 || got.Failures != 1 {
			t.Errorf("%+v", got)
		}
	})
}

// TestThrottleDiceAreRepeatable, and of this layer alone.
func TestThrottleDiceAreRepeatable(t *testing.T) {
	t.Parallel()
	a, b, c := newThrottle(Throttle{}, 1), newThrottle(Throttle{}, 1), newThrottle(Throttle{}, 2)
	same, sum := 0, 0.0
	for range 1000 {
		x := a.roll()
		if x < 0 || x >= 1 || x != b.roll() {
			t.Fatalf("rolled %v", x)
		}
		same += number(x == c.roll())
		sum += x
	}
	if same > 0 || math.Abs(sum/1000-0.5) > 0.05 {
		t.Errorf("%d the same, mean %v", same, sum/1000)
	}
}

func TestThrottleFaultsAndText(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		config Throttle
		faults string
	}{
		{Throttle{K: 1, MaxReject: 1, Window: math.MaxInt64, MinCalls: math.MaxInt}, ""},
		{Throttle{K: 0.99, MaxReject: 1.01, Window: 1, MinCalls: -1}, "K Window MinCalls MaxReject"},
		{Throttle{K: math.NaN(), MaxReject: math.NaN(), Window: -1}, "K Window MaxReject"},
		{Throttle{K: math.Inf(1), MaxReject: -1}, "K MaxReject"},
	} {
		if got := strings.Join(faultsOf(t, c.config), " "); got != c.faults {
			t.Errorf("%+v: faults %q, want %q", c.config, got, c.faults)
		}
	}
	if got, want := (Throttle{}).String(), "Throttle(K 1.67 of 20+ in 3s, <=90%)"; got != want {
		t.Errorf("text %q, want %q", got, want)
	}
}

// TestThrottleForEver: a window without an end still throttles.
func TestThrottleForEver(t *testing.T) {
	t.Parallel()
	s := newThrottle(Throttle{Window: math.MaxInt64, MinCalls: 1, MaxReject: 1}, 1)
	for range 100000 {
		s.exit(ticket{}, ending(failed))
	}
	if _, err := s.enter(t.Context(), monotonic()); err == nil {
		t.Error("admitted")
	}
}

func TestThrottleUnderLoad(t *testing.T) {
	t.Parallel()
	s := newThrottle(Throttle{MinCalls: 1, Window: minWindow}, 1)
	var wg sync.WaitGroup
	for worker := range 8 {
		wg.Go(func() {
			for i := range 5000 {
				if pass, err := s.enter(t.Context(), monotonic()); err == nil {
					s.exit(pass, ending(endKind((worker+i)%4)))
				}
				if i%1000 == 0 {
					s.reset()
				}
				if got := s.state(monotonic()); got.Failures > got.Calls {
					t.Errorf("%+v", got)
				}
			}
		})
	}
	wg.Wait()
}

func TestThrottleAllocatesNothing(t *testing.T) {
	noAllocs(t, newThrottle(Throttle{}, 1))
	failing := newThrottle(Throttle{MinCalls: math.MaxInt}, 1)
	failing.exit(ticket{}, ending(failed))
	noAllocs(t, failing)
}

func BenchmarkThrottle(b *testing.B) {
	b.Run("healthy", func(b *testing.B) { benchmarkAdmitter(b, newThrottle(Throttle{}, 1)) })
	failing := newThrottle(Throttle{MinCalls: math.MaxInt, Window: time.Hour}, 1)
	failing.exit(ticket{}, ending(failed))
	b.Run("some failed", func(b *testing.B) { benchmarkAdmitter(b, failing) })
}
