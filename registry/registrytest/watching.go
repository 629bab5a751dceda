package registrytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

func watchChecks() []check {
	return []check{
		{name: "first-list", run: firstList},
		{name: "later-watcher-has-the-list", run: laterWatcher},
		{name: "change-is-seen", run: changeIsSeen},
		{name: "withdrawal-is-seen", run: withdrawalIsSeen},
		{name: "equal-data-is-silent", run: equalIsSilent},
		{name: "other-names-are-silent", run: othersAreSilent},
		{name: "ctx-ends-next", run: ctxEndsNext},
		{name: "stop-ends-next-and-may-be-repeated", run: stopEndsNext},
		{name: "watchers-are-independent", run: watchersAreIndependent},
	}
}

// follower reads a watcher on a goroutine of its own.
type follower struct {
	watcher kregistry.Watcher
	ended   chan struct{}

	mu    sync.Mutex
	lists [][]*kregistry.ServiceInstance
	err   error
}

func (b *bench) follow(ctx context.Context, d kregistry.Discovery) *follower {
	b.Helper()
	watcher, err := d.Watch(ctx, "user")
	b.must(err)
	f := &follower{watcher: watcher, ended: make(chan struct{})}
	go func() {
		defer close(f.ended)
		for {
			list, err := watcher.Next()
			f.mu.Lock()
			f.err = err
			if err == nil {
				f.lists = append(f.lists, list)
			}
			f.mu.Unlock()
			if err != nil {
				return
			}
		}
	}()
	b.Cleanup(func() {
		_ = watcher.Stop()
		<-f.ended
	})
	return f
}

func (f *follower) count() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.lists)
}

func (f *follower) newest() []*kregistry.ServiceInstance {
	f.mu.Lock()
	defer f.mu.Unlock()
	if len(f.lists) == 0 {
		return nil
	}
	return f.lists[len(f.lists)-1]
}

func (b *bench) follows(f *follower, want ...string) {
	b.Helper()
	b.until(fmt.Sprintf("the watcher has %v", want), func() bool { return slices.Equal(ids(f.newest()), want) })
}

func firstList(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.sees(reader, "user", "1")
	b.follows(b.follow(b.Context(), reader), "1")
}

func laterWatcher(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	for range 3 {
		b.follows(b.follow(b.Context(), reader), "1")
	}
}

func changeIsSeen(b *bench) {
	owner, reader := b.open(), b.open()
	f := b.follow(b.Context(), reader)
	for _, id := range []string{"1", "2"} {
		b.must(owner.Register(b.Context(), user(id)))
	}
	b.follows(f, "1", "2")
	b.must(owner.Register(b.Context(), changed(user("1"), "weight", "7")))
	b.until("the new weight is pushed", func() bool {
		return slices.ContainsFunc(f.newest(), func(in *kregistry.ServiceInstance) bool { return in.Metadata["weight"] == "7" })
	})
}

func withdrawalIsSeen(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.must(owner.Register(b.Context(), user("2")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1", "2")
	b.must(owner.Deregister(b.Context(), user("1")))
	b.follows(f, "2")
	b.must(owner.Deregister(b.Context(), user("2")))
	b.follows(f)
}

func equalIsSilent(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	before := f.count()
	for range 5 {
		again := user("1")
		slices.Reverse(again.Endpoints)
		b.must(owner.Register(b.Context(), again))
		b.pass(b.backend.Within / 2)
	}
	b.never(max(b.backend.Expiry, b.backend.Within), "an equal list was pushed", func() bool { return f.count() != before })
}

func othersAreSilent(b *bench) {
	owner, reader := b.open(), b.open()
	b.must(owner.Register(b.Context(), user("1")))
	f := b.follow(b.Context(), reader)
	b.follows(f, "1")
	before := f.count()
	for i := range 10 {
		b.must(owner.Register(b.Context(), changed(instance("user-admin", "2"), "n", fmt.Sprint(i))))
	}
	b.never(2*b.backend.Within, "another name's update was pushed", func() bool { return f.count() != before })
}

// ctxEndsNext is the last part of case B37.
func ctxEndsNext(b *bench) {
	ctx, cancel := context.WithCancel(b.Context())
	f := b.follow(ctx, b.open())
	b.pass(b.backend.Within)
	cancel()
	b.ends(f)
	if !errors.Is(f.err, context.Canceled) {
		b.Errorf("Next returned %v", f.err)
	}
	b.must(f.watcher.Stop())
	b.must(f.watcher.Stop())
}

func (b *bench) ends(f *follower) {
	b.Helper()
	bound := time.NewTimer(100 * time.Millisecond)
	defer bound.Stop()
	select {
	case <-f.ended:
	case <-bound.C:
		b.Fatal("Next did not return within 100 ms")
	}
}

func stopEndsNext(b *bench) {
	f := b.follow(b.Context(), b.open())
	b.pass(b.backend.Within)
	b.must(f.watcher.Stop())
	b.ends(f)
	b.must(f.watcher.Stop())
	if list, err := f.watcher.Next(); err == nil {
		b.Errorf("Next after Stop returned %v", list)
	}
}

// watchersAreIndependent is the watcher part of case B50.
func watchersAreIndependent(b *bench) {
	owner, reader := b.open(), b.open()
	one, two := b.follow(b.Context(), reader), b.follow(b.Context(), reader)
	b.must(owner.Register(b.Context(), user("1")))
	b.follows(one, "1")
	b.follows(two, "1")
	one.newest()[0].Metadata["zone"] = "changed"
	one.newest()[0].Endpoints[0] = "grpc://changed:1"
	if got := two.newest()[0]; !registry.Equal(got, user("1")) {
		b.Errorf("the other watcher sees %v", got)
	}
	b.must(one.watcher.Stop())
	b.must(owner.Register(b.Context(), user("2")))
	b.follows(two, "1", "2")
	if got := two.newest()[0]; !registry.Equal(got, user("1")) {
		b.Errorf("after a change the other watcher sees %v", got)
	}
}
