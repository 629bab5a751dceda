package shield

import (
	"context"
	"math"
	"testing"
	"time"
)

// fullStack are all admitters of this package in one shield.
func fullStack(t testing.TB) *Shield {
	t.Helper()
	s, err := New("test", Throttle{}, Breaker{Ratio: 0.5, SlowAfter: time.Second},
		Rate{Permits: math.MaxInt, Wait: time.Second}, Concurrency{Max: 64, Queue: 16})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func work(_ context.Context, n int) (int, error) { return n, nil }

func TestAdmittersTogetherAllocateNothing(t *testing.T) {
	s, ctx := fullStack(t), t.Context()
	if n := testing.AllocsPerRun(1000, func() { _, _ = Call(ctx, s, 7, work) }); n != 0 {
		t.Errorf("Call: %v allocations", n)
	}
	if n := testing.AllocsPerRun(1000, func() {
		pass, err := s.Enter(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = pass.Exit(nil)
	}); n != 0 {
		t.Errorf("Enter and Exit: %v allocations", n)
	}
}

func BenchmarkAdmitters(b *testing.B) {
	three, err := New("test", Breaker{Ratio: 0.5}, Rate{Permits: math.MaxInt}, Concurrency{})
	if err != nil {
		b.Fatal(err)
	}
	for name, s := range map[string]*Shield{"Breaker+Rate+Concurrency": three, "all four": fullStack(b)} {
		b.Run(name, func(b *testing.B) {
			ctx := b.Context()
			b.ReportAllocs()
			for b.Loop() {
				_, _ = Call(ctx, s, 7, work)
			}
		})
	}
}
