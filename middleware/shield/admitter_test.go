package shield

import (
	"context"
	"errors"
	"testing"
)

// refusal is how an admitter refused, zero when it did not.
func refusal(err error) Rejected {
	var r *Rejected
	if errors.As(err, &r) {
		return *r
	}
	return Rejected{}
}

// mustEnter admits a call.
func mustEnter(t testing.TB, a admitter) ticket {
	t.Helper()
	pass, err := a.enter(context.Background(), monotonic())
	if err != nil {
		t.Fatalf("refused: %v", refusal(err))
	}
	return pass
}

// mustRefuse has a call refused.
func mustRefuse(t testing.TB, a admitter, want Rejected) {
	t.Helper()
	_, err := a.enter(t.Context(), monotonic())
	if got := refusal(err); err == nil || got != want {
		t.Fatalf("error %v (%+v), want %+v", err, got, want)
	}
}

// ending is the end of a call now.
func ending(kind endKind) end { return end{kind: kind, now: monotonic()} }

// admitted is a way of n calls through an admitter, one after another.
func admitted(t testing.TB, a admitter, kind endKind, n int) {
	t.Helper()
	for range n {
		pass := mustEnter(t, a)
		a.exit(pass, ending(kind))
	}
}

// faultsOf are the fields that New finds wrong in the layer.
func faultsOf(t *testing.T, layer Layer) []string {
	t.Helper()
	_, err := New("test", layer)
	var fields []string
	var walk func(error)
	walk = func(err error) {
		var many interface{ Unwrap() []error }
		if errors.As(err, &many) {
			for _, e := range many.Unwrap() {
				walk(e)
			}
			return
		}
		var fault *ConfigError
		if errors.As(err, &fault) {
			if fault.Value == "" || fault.Remedy == "" || fault.Layer == "" {
				t.Errorf("fault says too little: %v", fault)
			}
			fields = append(fields, fault.Field)
		}
	}
	walk(err)
	return fields
}

// noAllocs fails when an admitted call costs an allocation.
func noAllocs(t *testing.T, a admitter) {
	t.Helper()
	ctx := t.Context()
	for _, kind := range []endKind{succeeded, ignored} {
		if n := testing.AllocsPerRun(1000, func() {
			now := monotonic()
			pass, err := a.enter(ctx, now)
			if err != nil {
				t.Fatal(err)
			}
			a.exit(pass, end{kind: kind, now: now})
		}); n != 0 {
			t.Errorf("%v allocations", n)
		}
	}
}

// benchmarkAdmitter measures an admitted call, alone and on all cores, without the
// clock, which a call reads once each way for all its layers.
func benchmarkAdmitter(b *testing.B, a admitter) {
	b.Run("alone", func(b *testing.B) {
		ctx, now := b.Context(), monotonic()
		b.ReportAllocs()
		for b.Loop() {
			if pass, err := a.enter(ctx, now); err == nil {
				a.exit(pass, end{now: now})
			}
		}
	})
	b.Run("parallel", func(b *testing.B) {
		ctx, now := b.Context(), monotonic()
		b.ReportAllocs()
		b.RunParallel(func(pb *testing.PB) {
			for pb.Next() {
				if pass, err := a.enter(ctx, now); err == nil {
					a.exit(pass, end{now: now})
				}
			}
		})
	})
}
