package registry_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/memory"
)

// stubRegistrar is a Registrar that is no Discovery.
type stubRegistrar struct {
	register   func(context.Context) error
	deregister func(context.Context) error
	calls      atomic.Int64
}

func (s *stubRegistrar) Register(ctx context.Context, _ *kregistry.ServiceInstance) error {
	s.calls.Add(1)
	return call(ctx, s.register)
}

func (s *stubRegistrar) Deregister(ctx context.Context, _ *kregistry.ServiceInstance) error {
	s.calls.Add(1)
	return call(ctx, s.deregister)
}

func call(ctx context.Context, fn func(context.Context) error) error {
	if fn == nil {
		return nil
	}
	return fn(ctx)
}

var errLost = errors.New("answer lost")

func fails(context.Context) error { return errLost }

func TestInvariant02FailedAndDidNotHappenAreDifferent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		// Nothing can be read back: a failed write stays unconfirmed.
		r := &stubRegistrar{register: fails}
		g := registry.NewRegistration(r, node("a"))
		if err := g.Register(t.Context()); !errors.Is(err, registry.ErrUnconfirmed) || !errors.Is(err, errLost) {
			t.Errorf("Register: %v", err)
		}
		if got := g.State(); got != registry.Unconfirmed {
			t.Errorf("state is %s", got)
		}
		if err := g.Deregister(t.Context()); err != nil || g.State() != registry.Withdrawn {
			t.Errorf("Deregister: %v, state %s", err, g.State())
		}
		// The same fault with a Discovery that says no: it did not happen.
		g = registry.NewRegistration(r, node("a"), registry.ReadBack(memory.New()))
		if err := g.Register(t.Context()); errors.Is(err, registry.ErrUnconfirmed) || !errors.Is(err, errLost) {
			t.Errorf("Register: %v", err)
		}
		if got := g.State(); got != registry.Failed {
			t.Errorf("state is %s", got)
		}
		calls := r.calls.Load()
		if err := g.Deregister(t.Context()); err != nil || r.calls.Load() != calls {
			t.Errorf("Deregister of what never was: %v, %d calls", err, r.calls.Load()-calls)
		}
	})
}

func TestInvariant02FailedDeregisterIsUnconfirmed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := &stubRegistrar{deregister: fails}
		g := registry.NewRegistration(r, node("a"))
		if err := g.Register(t.Context()); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		err := g.Deregister(t.Context())
		if !errors.Is(err, registry.ErrUnconfirmed) || !errors.Is(err, errLost) {
			t.Errorf("Deregister: %v", err)
		}
		if took := time.Since(began); took != 3*time.Second {
			t.Errorf("without a deadline Deregister took %s, want 3s", took)
		}
		if got := g.State(); got != registry.Unconfirmed {
			t.Errorf("state is %s", got)
		}
	})
}

func TestInvariant10DeregisterIsBoundedByItsCtx(t *testing.T) {
	t.Parallel()
	for name, deregister := range map[string]func(context.Context) error{
		"ends with ctx": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
		"ignores ctx":   func(context.Context) error { time.Sleep(time.Minute); return nil },
		"panics":        func(context.Context) error { panic("injected panic") },
		"fails":         fails,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				g := registry.NewRegistration(&stubRegistrar{deregister: deregister}, node("a"))
				if err := g.Register(t.Context()); err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
				defer cancel()
				began := time.Now()
				if err := g.Deregister(ctx); !errors.Is(err, registry.ErrUnconfirmed) {
					t.Errorf("Deregister: %v", err)
				}
				if took := time.Since(began); took > 210*time.Millisecond {
					t.Errorf("Deregister took %s", took)
				}
				time.Sleep(2 * time.Minute) // the one that ignores ctx comes back
			})
		})
	}
}

func TestInvariant01LateRegisterDoesNotResurrect(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var log []string
		release := make(chan struct{})
		r := &stubRegistrar{
			register:   func(context.Context) error { <-release; log = append(log, "register"); return nil },
			deregister: func(context.Context) error { log = append(log, "deregister"); return nil },
		}
		events := &seen{}
		g := registry.NewRegistration(r, node("a"), registry.OnEvent(events.event))
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := g.Register(ctx); !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, registry.ErrUnconfirmed) {
			t.Errorf("Register: %v", err)
		}
		close(release)
		synctest.Wait()
		if got := strings.Join(log, " "); got != "register deregister" {
			t.Errorf("calls were %q", got)
		}
		if got := g.State(); got != registry.Failed {
			t.Errorf("state is %s", got)
		}
		if events.count(registry.LateWriteUndone) != 1 {
			t.Errorf("events are %v", events.events)
		}
	})
}

func TestInvariant01WriteThatNeverAnswersKeepsNothingInPlace(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		release := make(chan struct{})
		r := &stubRegistrar{
			register: func(ctx context.Context) error {
				err := store.Register(ctx, node("a")) // applied, and the answer hangs
				<-release
				return err
			},
			deregister: func(ctx context.Context) error { return store.Deregister(ctx, node("a")) },
		}
		g := registry.NewRegistration(r, node("a"), registry.ReadBack(store))
		go func() { _ = g.Register(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		err := g.Deregister(ctx)
		if !errors.Is(err, registry.ErrUnconfirmed) {
			t.Errorf("Deregister: %v", err)
		}
		if list, _ := store.GetService(t.Context(), "user"); len(list) != 0 {
			t.Error("the record stayed because an answer was missing")
		}
		close(release)
		synctest.Wait()
		if !g.State().Terminal() {
			t.Errorf("state is %s", g.State())
		}
	})
}

func TestInvariant02RecordThatVanishesAgainDoesNotCount(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store, calls := memory.New(), 0
		r := &stubRegistrar{register: func(ctx context.Context) error {
			if calls++; calls == 1 {
				return errors.Join(store.Register(ctx, node("a")), errLost)
			}
			return errors.Join(store.Deregister(ctx, node("a")), errLost)
		}}
		g := registry.NewRegistration(r, node("a"), registry.ReadBack(store))
		if err := g.Register(t.Context()); !errors.Is(err, errLost) || g.State() != registry.Failed || calls != 2 {
			t.Errorf("Register: %v, state %s, %d calls", err, g.State(), calls)
		}
	})
}

func TestRegisterGivesABoundedCtxThatEndsWithIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var given context.Context
		r := &stubRegistrar{register: func(ctx context.Context) error { given = ctx; return nil }}
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		defer cancel()
		if err := registry.NewRegistration(r, node("a")).Register(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		deadline, ok := given.Deadline()
		if !ok || time.Until(deadline) != 100*time.Millisecond {
			t.Errorf("deadline in %s, %v", time.Until(deadline), ok)
		}
		if given.Err() == nil {
			t.Error("the ctx of Register lives on after it")
		}
	})
}

func TestConcurrentUseOfOneGeneration(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		store := memory.New()
		for range 50 {
			g := registry.NewRegistration(store, node("a"))
			done := make(chan struct{}, 8)
			for range 4 {
				go func() { _ = g.Register(t.Context()); done <- struct{}{} }()
				go func() {
					if err := g.Deregister(t.Context()); err != nil {
						t.Errorf("Deregister: %v", err)
					}
					done <- struct{}{}
				}()
			}
			for range 8 {
				<-done
			}
			if list, _ := store.GetService(t.Context(), "user"); len(list) != 0 || !g.State().Terminal() {
				t.Fatalf("%d records left, state %s", len(list), g.State())
			}
		}
	})
}

func TestRegistrationTellsBadInput(t *testing.T) {
	t.Parallel()
	g := registry.NewRegistration(nil, nil)
	err := g.Register(t.Context())
	if err == nil || !strings.Contains(err.Error(), "registrar is nil") || !strings.Contains(err.Error(), "instance is nil") {
		t.Errorf("Register: %v", err)
	}
	if err := g.Deregister(t.Context()); err != nil {
		t.Errorf("Deregister: %v", err)
	}
	first := registry.NewRegistration(memory.New(), node("a"))
	if err := first.Next(node("b")).Register(t.Context()); err == nil || !strings.Contains(err.Error(), `"b"`) {
		t.Errorf("a next generation with another id: %v", err)
	}
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	if err := first.Register(ended); !errors.Is(err, context.Canceled) || first.State() != registry.Idle {
		t.Errorf("Register with an ended ctx: %v, state %s", err, first.State())
	}
	if err := first.Register(t.Context()); err != nil {
		t.Errorf("Register after nothing was written: %v", err)
	}
}

// TestRegistrationPassesOnWhatABackendTells has a backend that speaks of the
// record long after Register, through a window between it and the caller.
func TestRegistrationPassesOnWhatABackendTells(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var tell func(registry.Event)
		backend := &stubRegistrar{register: func(ctx context.Context) error {
			tell = registry.ListenerFromContext(ctx)
			return nil
		}}
		inner, outer := &seen{}, &seen{}
		windowed := registry.Windowed(backend, 0, registry.OnEvent(inner.event))
		g := registry.NewRegistration(windowed, node("a"), registry.OnEvent(outer.event))
		if err := g.Register(t.Context()); err != nil || tell == nil {
			t.Fatalf("Register: %v, a listener: %t", err, tell != nil)
		}
		tell(registry.Event{Kind: registry.RecordContested, Service: "user", Instance: "a"})
		synctest.Wait()
		for name, s := range map[string]*seen{"the window": inner, "the registration": outer} {
			if n := s.count(registry.RecordContested); n != 1 {
				t.Errorf("%s heard of it %d times", name, n)
			}
		}
	})
}
