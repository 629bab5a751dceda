package registrytest

import (
	"context"
	"errors"
	"sync/atomic"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

var errFault = errors.New("injected fault")

// slow is how long a slow backend takes.
const slow = 300 * time.Millisecond

func generationChecks() []check {
	return []check{
		{name: "register-and-deregister", run: wholeGeneration},
		{name: "terminal-does-not-come-back", run: terminalStays},
		{name: "slow", run: slowRegistrar},
		{name: "register-fails", run: writeFault(before(errFault), registry.Failed, false)},
		{name: "register-panics", run: writeFault(before(nil), registry.Failed, false)},
		{name: "register-fails-after-the-write", run: writeFault(after(errFault), registry.Registered, true)},
		{name: "register-panics-after-the-write", run: writeFault(after(nil), registry.Registered, true)},
		{name: "register-unreadable", run: registerUnreadable},
		{name: "register-answers-late", run: registerLate},
		{name: "register-in-flight-when-start-fails", run: registerInFlight},
		{name: "second-generation-replaces", run: secondReplaces},
		{name: "second-generation-fails", run: secondFails},
		{name: "second-generation-lands-late", run: secondLate},
		{name: "deregister-fails-after-the-write", run: withdrawFault(after(errFault))},
		{name: "deregister-panics-after-the-write", run: withdrawFault(after(nil))},
		{name: "deregister-fails-once", run: withdrawFault(once(before(errFault)))},
		{name: "deregister-panics-once", run: withdrawFault(once(before(nil)))},
		{name: "deregister-fails-for-ever", run: withdrawFailsForEver},
		{name: "deregister-hangs", run: withdrawHangs},
	}
}

// fault is what Faulty does with a write.
type fault = func(context.Context, *kregistry.ServiceInstance, func(context.Context) error) error

// raise returns err, or panics without one.
func raise(err error) error {
	if err == nil {
		panic("injected panic")
	}
	return err
}

func before(err error) fault {
	return func(context.Context, *kregistry.ServiceInstance, func(context.Context) error) error {
		return raise(err)
	}
}

func after(cause error) fault {
	return func(ctx context.Context, _ *kregistry.ServiceInstance, next func(context.Context) error) error {
		if err := next(ctx); err != nil {
			return err
		}
		return raise(cause)
	}
}

// once applies a fault to the first call alone.
func once(f fault) fault {
	var used atomic.Bool
	return func(ctx context.Context, in *kregistry.ServiceInstance, next func(context.Context) error) error {
		if used.CompareAndSwap(false, true) {
			return f(ctx, in, next)
		}
		return next(ctx)
	}
}

// late is a fault that writes after the slow time, whatever its ctx says.
func late(ctx context.Context, _ *kregistry.ServiceInstance, next func(context.Context) error) error {
	timer := time.NewTimer(slow)
	defer timer.Stop()
	<-timer.C
	return next(context.WithoutCancel(ctx))
}

func (b *bench) state(r *registry.Registration, want registry.State) {
	b.Helper()
	if got := r.State(); got != want {
		b.Errorf("state is %s, want %s", got, want)
	}
}

func wholeGeneration(b *bench) {
	owner, reader := b.open(), b.open()
	g := registry.NewRegistration(owner, user("1"))
	b.state(g, registry.Idle)
	b.must(g.Register(b.Context()))
	b.state(g, registry.Registered)
	b.sees(reader, "user", "1")
	b.must(g.Deregister(b.Context()))
	b.state(g, registry.Withdrawn)
	b.sees(reader, "user")
}

func terminalStays(b *bench) {
	owner := b.open()
	g := registry.NewRegistration(owner, user("1"))
	b.must(g.Register(b.Context()))
	if err := g.Register(b.Context()); err == nil || errors.Is(err, registry.ErrTerminal) {
		b.Errorf("second Register: %v", err)
	}
	b.must(g.Deregister(b.Context()))
	if err := g.Register(b.Context()); !errors.Is(err, registry.ErrTerminal) {
		b.Errorf("Register of a withdrawn generation: %v", err)
	}
	unused := registry.NewRegistration(owner, user("2"))
	b.must(unused.Deregister(b.Context()))
	if err := unused.Register(b.Context()); !errors.Is(err, registry.ErrTerminal) {
		b.Errorf("Register after a Deregister without one: %v", err)
	}
	b.sees(owner, "user")
}

func slowRegistrar(b *bench) {
	owner := b.open()
	g := registry.NewRegistration(&Faulty{Registry: owner, OnRegister: late, OnDeregister: late}, user("1"))
	b.must(g.Register(b.Context()))
	b.sees(owner, "user", "1")
	b.must(g.Deregister(b.Context()))
	b.sees(owner, "user")
}

// writeFault has each Register fail in one way.
func writeFault(f fault, want registry.State, there bool) func(*bench) {
	return func(b *bench) {
		owner := b.open()
		g := registry.NewRegistration(&Faulty{Registry: owner, OnRegister: f}, user("1"))
		err := g.Register(b.Context())
		b.state(g, want)
		if there {
			b.must(err)
			b.sees(owner, "user", "1")
		} else if err == nil || errors.Is(err, registry.ErrUnconfirmed) {
			b.Errorf("Register: %v", err)
		}
		b.must(g.Deregister(b.Context()))
		b.sees(owner, "user")
	}
}

func registerUnreadable(b *bench) {
	owner := b.open()
	g := registry.NewRegistration(&Faulty{Registry: owner, OnRegister: after(errFault), OnList: unreadable}, user("1"))
	err := g.Register(b.Context())
	if !errors.Is(err, registry.ErrUnconfirmed) || !errors.Is(err, errFault) {
		b.Errorf("Register: %v", err)
	}
	b.state(g, registry.Unconfirmed)
	b.must(g.Deregister(b.Context()))
	b.state(g, registry.Withdrawn)
	b.sees(owner, "user")
}

func unreadable(context.Context, string, func(context.Context) ([]*kregistry.ServiceInstance, error)) ([]*kregistry.ServiceInstance, error) {
	return nil, errFault
}

// registerLate is invariant 1 for registrations: given up, then landed.
func registerLate(b *bench) {
	owner := b.open()
	g := registry.NewRegistration(&Faulty{Registry: owner, OnRegister: late}, user("1"))
	ctx, cancel := short(b.Context(), slow/3)
	defer cancel()
	began := time.Now()
	err := g.Register(ctx)
	if !errors.Is(err, context.DeadlineExceeded) || !errors.Is(err, registry.ErrUnconfirmed) {
		b.Errorf("Register: %v", err)
	}
	if took := time.Since(began); took > slow*2/3 {
		b.Errorf("Register returned after %s", took)
	}
	b.untilWithin(slow+b.backend.Within, "the late write is undone", func() bool { return g.State() == registry.Failed })
	b.never(b.threeExpiries(), "the record is there", func() bool { return len(b.list(owner, "user")) != 0 })
	b.must(g.Deregister(b.Context()))
}

func registerInFlight(b *bench) {
	owner := b.open()
	g := registry.NewRegistration(&Faulty{Registry: owner, OnRegister: late}, user("1"))
	registered := make(chan error, 1)
	go func() { registered <- g.Register(b.Context()) }()
	b.pass(slow / 3)
	b.must(g.Deregister(b.Context()))
	if err := <-registered; !errors.Is(err, registry.ErrTerminal) {
		b.Errorf("Register: %v", err)
	}
	if !g.State().Terminal() {
		b.Errorf("state is %s", g.State())
	}
	b.never(b.threeExpiries(), "the record is there", func() bool { return len(b.list(owner, "user")) != 0 })
}

func secondReplaces(b *bench) {
	owner := b.open()
	first := registry.NewRegistration(owner, user("1"))
	b.must(first.Register(b.Context()))
	second := first.Next(changed(user("1"), "weight", "0"))
	b.must(second.Register(b.Context()))
	b.state(first, registry.Replaced)
	b.must(first.Deregister(b.Context()))
	b.until("the second one's data", func() bool {
		list := b.list(owner, "user")
		return len(list) == 1 && list[0].Metadata["weight"] == "0"
	})
	b.must(second.Deregister(b.Context()))
	b.sees(owner, "user")
}

// firstStays checks over three expiries that the first generation is in force.
func (b *bench) firstStays(reader registry.Registry, first *registry.Registration) {
	b.Helper()
	b.state(first, registry.Registered)
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	b.never(b.threeExpiries(), "the first generation's record changed or went", func() bool {
		newest := f.newest()
		return len(newest) != 1 || !registry.Equal(newest[0], user("1"))
	})
}

func secondFails(b *bench) {
	for _, linked := range []bool{true, false} {
		owner := b.open()
		faulty := &Faulty{Registry: owner}
		first := registry.NewRegistration(faulty, user("1"))
		b.must(first.Register(b.Context()))
		faulty.OnRegister = before(errFault)
		second := registry.NewRegistration(faulty, changed(user("1"), "weight", "0"))
		if linked {
			second = first.Next(changed(user("1"), "weight", "0"))
		}
		if err := second.Register(b.Context()); !errors.Is(err, errFault) {
			b.Errorf("Register: %v", err)
		}
		b.must(second.Deregister(b.Context()))
		b.firstStays(owner, first)
		b.must(first.Deregister(b.Context()))
	}
}

func secondLate(b *bench) {
	owner := b.open()
	faulty := &Faulty{Registry: owner}
	first := registry.NewRegistration(faulty, user("1"))
	b.must(first.Register(b.Context()))
	faulty.OnRegister = once(late)
	second := first.Next(changed(user("1"), "weight", "0"))
	ctx, cancel := short(b.Context(), slow/3)
	defer cancel()
	if err := second.Register(ctx); !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("Register: %v", err)
	}
	b.untilWithin(slow+b.backend.Within, "the late write is undone", func() bool { return second.State() == registry.Failed })
	b.until("the first one's data is back", func() bool {
		list := b.list(owner, "user")
		return len(list) == 1 && registry.Equal(list[0], user("1"))
	})
	b.firstStays(owner, first)
}

// withdrawFault has Deregister fail in a way that reading back or trying again
// resolves.
func withdrawFault(f fault) func(*bench) {
	return func(b *bench) {
		owner := b.open()
		g := registry.NewRegistration(&Faulty{Registry: owner, OnDeregister: f}, user("1"))
		b.must(g.Register(b.Context()))
		b.must(g.Deregister(b.Context()))
		b.state(g, registry.Withdrawn)
		b.sees(owner, "user")
	}
}

func withdrawFailsForEver(b *bench) {
	owner := b.open()
	faulty := &Faulty{Registry: owner, OnDeregister: before(errFault)}
	g := registry.NewRegistration(faulty, user("1"))
	b.must(g.Register(b.Context()))
	ctx, cancel := short(b.Context(), slow)
	defer cancel()
	began := time.Now()
	err := g.Deregister(ctx)
	if !errors.Is(err, registry.ErrUnconfirmed) || !errors.Is(err, errFault) {
		b.Errorf("Deregister: %v", err)
	}
	if took := time.Since(began); took > slow+b.backend.Within {
		b.Errorf("Deregister returned after %s", took)
	}
	b.state(g, registry.Unconfirmed)
	faulty.OnDeregister = nil
	b.must(g.Deregister(b.Context()))
	b.state(g, registry.Withdrawn)
	b.sees(owner, "user")
}

func withdrawHangs(b *bench) {
	owner := b.open()
	g := registry.NewRegistration(&Faulty{Registry: owner, OnDeregister: once(late)}, user("1"))
	b.must(g.Register(b.Context()))
	ctx, cancel := short(b.Context(), slow/3)
	defer cancel()
	began := time.Now()
	if err := g.Deregister(ctx); !errors.Is(err, registry.ErrUnconfirmed) || !errors.Is(err, context.DeadlineExceeded) {
		b.Errorf("Deregister: %v", err)
	}
	if took := time.Since(began); took > slow*2/3 {
		b.Errorf("Deregister returned after %s", took)
	}
	b.untilWithin(slow+b.backend.Within, "the late answer counts", func() bool { return g.State() == registry.Withdrawn })
	b.sees(owner, "user")
}
