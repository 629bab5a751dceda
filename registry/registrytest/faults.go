package registrytest

import (
	"context"
	"slices"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

func faultChecks() []check {
	return []check{
		{name: "answer-lost", run: answerLost},
		{name: "watch-cut-50", run: watchCut},
		{name: "owner-killed", run: ownerKilled, needs: func(b Backend, s Store) bool { return s.Kill != nil && b.Expiry > 0 }},
		{name: "killed-before-the-reader-came", run: killedBefore, needs: func(b Backend, s Store) bool { return s.Kill != nil && b.Expiry > 0 }},
		{name: "store-wiped", run: storeWiped, needs: func(_ Backend, s Store) bool { return s.Wipe != nil }},
		{name: "garbage-record", run: garbageRecord, needs: func(_ Backend, s Store) bool { return s.Garbage != nil }},
	}
}

// answerLost: the write is applied, its answer never comes before the ctx
// ends, neither for the registration nor for the withdrawal.
func answerLost(b *bench) {
	owner := b.open()
	lost := func(ctx context.Context, _ *kregistry.ServiceInstance, next func(context.Context) error) error {
		if err := next(ctx); err != nil {
			return err
		}
		<-ctx.Done()
		return ctx.Err()
	}
	g := registry.NewRegistration(&Faulty{Registry: owner, OnRegister: lost}, user("1"))
	ctx, cancel := short(b.Context(), slow)
	defer cancel()
	if err := g.Register(ctx); err == nil {
		b.Error("a registration without an answer in time counts")
	}
	b.until("the write is undone", func() bool { return g.State() == registry.Failed })
	b.never(b.threeExpiries(), "the record is there", func() bool { return len(b.list(owner, "user")) != 0 })

	g = registry.NewRegistration(&Faulty{Registry: owner, OnDeregister: lost}, user("1"))
	b.must(g.Register(b.Context()))
	ctx, cancel = short(b.Context(), slow)
	defer cancel()
	b.must(g.Deregister(ctx)) // found gone by reading back
	b.state(g, registry.Withdrawn)
}

// watchCut cuts the watch 50 times while the list changes; whatever happens in
// between, the newest list is known at the end, and no list is ever lost.
func watchCut(b *bench) {
	owner := b.open()
	var (
		mu   sync.Mutex
		cut  = make(chan struct{})
		open int
	)
	d := &Faulty{Registry: owner, OnWatch: func(ctx context.Context, _ string, next func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
		mu.Lock()
		defer mu.Unlock()
		open++
		return cutWatcher(ctx, next, cut)
	}}
	opened := func() int {
		mu.Lock()
		defer mu.Unlock()
		return open
	}
	b.must(owner.Register(b.Context(), user("0")))
	hub, _ := b.hub(d)
	s, cancel := b.subscribe(hub)
	defer cancel()
	for i := range 50 {
		b.untilWithin(5*time.Second, "the watch is open again", func() bool { return opened() == i+1 })
		b.must(owner.Register(b.Context(), changed(user("0"), "n", string(rune('A'+i)))))
		mu.Lock()
		close(cut)
		cut = make(chan struct{})
		mu.Unlock()
		if known := s.newest(); known.Answered && len(known.Instances) != 1 {
			b.Fatalf("cut %d: the list is %v", i, known.Instances)
		}
	}
	b.untilWithin(5*time.Second, "the newest data is known", func() bool {
		list := s.newest().Instances
		return len(list) == 1 && list[0].Metadata["n"] == string(rune('A'+49))
	})
}

func ownerKilled(b *bench) {
	victim, survivor, reader := b.open(), b.open(), b.open()
	b.must(victim.Register(b.Context(), user("1")))
	b.must(survivor.Register(b.Context(), user("2")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1", "2")
	b.store.Kill(b.T, victim)
	b.untilWithin(b.backend.Expiry+b.backend.Expiry/3+b.backend.Within, "the dead one's record expires", func() bool {
		return slices.Equal(ids(f.newest()), []string{"2"})
	})
	b.never(b.threeExpiries(), "the list changed", func() bool { return !slices.Equal(ids(f.newest()), []string{"2"}) })
}

func killedBefore(b *bench) {
	victim, survivor := b.open(), b.open()
	b.must(victim.Register(b.Context(), user("1")))
	b.must(survivor.Register(b.Context(), user("2")))
	b.store.Kill(b.T, victim)
	b.pass(b.backend.Expiry / 2)
	f := b.follow(b.Context(), b.open())
	b.untilWithin(b.backend.Expiry+b.backend.Expiry/3+b.backend.Within, "the stale record goes", func() bool {
		return slices.Equal(ids(f.newest()), []string{"2"})
	})
}

// storeWiped is case B45.
func storeWiped(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.must(owner.Register(b.Context(), changed(user("1"), "weight", "0")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	b.store.Wipe(b.T)
	b.untilWithin(b.backend.Expiry*2/3+b.backend.Within, "the newest data is back", func() bool {
		list := b.list(reader, "user")
		return len(list) == 1 && list[0].Metadata["weight"] == "0"
	})
	b.never(b.threeExpiries(), "the record changes again", func() bool {
		list := b.list(reader, "user")
		return len(list) != 1 || list[0].Metadata["weight"] != "0"
	})
	b.must(owner.Deregister(b.Context(), user("1")))
	b.sees(reader, "user")
	b.store.Wipe(b.T)
	b.never(b.threeExpiries(), "a withdrawn record came back", func() bool { return len(b.list(reader, "user")) != 0 })
}

func garbageRecord(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	b.store.Garbage(b.T, "user")
	b.never(2*b.backend.Within, "garbage changed the list", func() bool { return !slices.Equal(ids(f.newest()), []string{"1"}) })
	b.must(owner.Register(b.Context(), user("2")))
	b.follows(f, "1", "2")
	b.sees(reader, "user", "1", "2")
}
