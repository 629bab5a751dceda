package registrytest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

func hubChecks() []check {
	return []check{
		{name: "follows-the-backend", run: hubFollows},
		{name: "list-watch-gap", run: listWatchGap},
		{name: "empty-push-is-held", run: emptyHeld},
		{name: "empty-push-is-applied-when-asked", run: emptyApplied},
		{name: "garbage-and-duplicates", run: hubGarbage},
		{name: "unreadable-is-not-empty", run: hubUnreadable},
		{name: "watcher-ends-canceled", run: watchEnds(func() ([]*kregistry.ServiceInstance, error) { return nil, context.Canceled })},
		{name: "watcher-panics", run: watchEnds(func() ([]*kregistry.ServiceInstance, error) { panic("injected panic") })},
		{name: "watch-returns-nothing", run: watchIsNil},
		{name: "subscriber-panics", run: subscriberPanics},
		{name: "last-subscriber-stops-the-watch", run: lastSubscriber},
		{name: "thousand-subscriptions", run: thousandSubscriptions},
	}
}

// subscription collects what a subscriber is told.
type subscription struct {
	mu    sync.Mutex
	all   []registry.Snapshot
	calls atomic.Int64
}

func (s *subscription) take(snapshot registry.Snapshot) {
	s.calls.Add(1)
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, snapshot)
}

func (s *subscription) newest() registry.Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.all) == 0 {
		return registry.Snapshot{}
	}
	return s.all[len(s.all)-1]
}

// hub returns a hub over a discovery, closed at the end, and its events.
func (b *bench) hub(d kregistry.Discovery, opts ...registry.HubOption) (*registry.Hub, *eventLog) {
	events := &eventLog{}
	hub := registry.NewHub(d, append(opts, registry.OnEvent(events.add))...)
	b.Cleanup(func() {
		if err := hub.Close(); err != nil {
			b.Errorf("close hub: %v", err)
		}
	})
	return hub, events
}

type eventLog struct {
	mu  sync.Mutex
	all []registry.Event
}

func (l *eventLog) add(e registry.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.all = append(l.all, e)
}

func (l *eventLog) count(kind registry.EventKind) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	n := 0
	for _, e := range l.all {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

func (b *bench) subscribe(hub *registry.Hub) (*subscription, func()) {
	s := &subscription{}
	return s, hub.Subscribe("user", s.take)
}

func (b *bench) knows(s *subscription, want ...string) {
	b.Helper()
	b.until(fmt.Sprintf("the subscriber has %v", want), func() bool {
		newest := s.newest()
		return newest.Answered && slices.Equal(ids(newest.Instances), want)
	})
}

func hubFollows(b *bench) {
	owner, reader := b.open(), b.open()
	hub, _ := b.hub(reader)
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.knows(s)
	b.must(owner.Register(b.Context(), user("1")))
	b.must(owner.Register(b.Context(), user("2")))
	b.knows(s, "1", "2")
	second, cancelSecond := b.subscribe(hub)
	defer cancelSecond()
	b.knows(second, "1", "2")
	b.must(owner.Deregister(b.Context(), user("1")))
	b.knows(s, "2")
	b.knows(second, "2")
}

// listWatchGap is case B38: the change falls between list and watch, and the
// watch reports nothing older than itself.
func listWatchGap(b *bench) {
	owner := b.open()
	b.must(owner.Register(b.Context(), user("a")))
	b.sees(owner, "user", "a")
	d := &Faulty{Registry: owner, OnWatch: func(ctx context.Context, _ string, _ func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
		err := errors.Join(owner.Register(ctx, user("b")), owner.Deregister(ctx, user("a")))
		return silentWatcher(ctx), err
	}}
	hub, _ := b.hub(d)
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.knows(s, "b")
}

// silentWatcher never has news.
func silentWatcher(ctx context.Context) kregistry.Watcher {
	ctx, stop := context.WithCancel(ctx)
	return StubWatcher{
		Answer:  func() ([]*kregistry.ServiceInstance, error) { <-ctx.Done(); return nil, ctx.Err() },
		Stopped: func() error { stop(); return nil },
	}
}

// emptyHeld is case B36, on.
func emptyHeld(b *bench) {
	owner := b.open()
	hub, events := b.hub(owner)
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.must(owner.Register(b.Context(), user("a")))
	b.knows(s, "a")
	calls := s.calls.Load()
	b.must(owner.Deregister(b.Context(), user("a")))
	b.until("one event", func() bool { return events.count(registry.EmptyHeld) == 1 })
	b.never(2*b.backend.Within, "a further callback or event", func() bool {
		return s.calls.Load() != calls || events.count(registry.EmptyHeld) != 1
	})
	b.must(owner.Register(b.Context(), user("c")))
	b.knows(s, "c")
}

// emptyApplied is case B36, off.
func emptyApplied(b *bench) {
	owner := b.open()
	hub, events := b.hub(owner, registry.HoldEmpty(false))
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.must(owner.Register(b.Context(), user("a")))
	b.knows(s, "a")
	b.must(owner.Deregister(b.Context(), user("a")))
	b.knows(s)
	if n := events.count(registry.EmptyHeld); n != 0 {
		b.Errorf("%d events of a held list", n)
	}
	b.must(owner.Register(b.Context(), user("c")))
	b.knows(s, "c")
}

// hubGarbage is the record part of case B40.
func hubGarbage(b *bench) {
	owner := b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.sees(owner, "user", "1")
	garbage := func(ctx context.Context, _ string, next func(context.Context) ([]*kregistry.ServiceInstance, error)) ([]*kregistry.ServiceInstance, error) {
		list, err := next(ctx)
		list = append(list, nil, user("1"), user("1"),
			&kregistry.ServiceInstance{ID: "no-endpoint", Name: "user"},
			&kregistry.ServiceInstance{ID: "no-host", Name: "user", Endpoints: []string{"grpc://:9000"}})
		return list, err
	}
	d := &Faulty{Registry: owner, OnList: garbage, OnWatch: func(ctx context.Context, name string, _ func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
		return b.poller(ctx, func() ([]*kregistry.ServiceInstance, error) {
			return garbage(ctx, name, func(ctx context.Context) ([]*kregistry.ServiceInstance, error) { return owner.GetService(ctx, name) })
		}), nil
	}}
	hub, events := b.hub(d)
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.knows(s, "1")
	b.until("three records skipped", func() bool { return events.count(registry.RecordSkipped) == 3 })
	b.must(owner.Register(b.Context(), user("2")))
	b.knows(s, "1", "2")
	if n := events.count(registry.RecordSkipped); n != 3 {
		b.Errorf("%d events for 3 bad records that did not change", n)
	}
}

// poller is a watcher that lists every 10 ms.
func (b *bench) poller(ctx context.Context, list func() ([]*kregistry.ServiceInstance, error)) kregistry.Watcher {
	ctx, stop := context.WithCancel(ctx)
	return StubWatcher{
		Answer: func() ([]*kregistry.ServiceInstance, error) {
			timer := time.NewTimer(10 * time.Millisecond)
			defer timer.Stop()
			select {
			case <-ctx.Done():
				return nil, ctx.Err()
			case <-timer.C:
				return list()
			}
		},
		Stopped: func() error { stop(); return nil },
	}
}

// hubUnreadable is invariant 11 for lists.
func hubUnreadable(b *bench) {
	owner := b.open()
	b.must(owner.Register(b.Context(), user("1")))
	b.sees(owner, "user", "1")
	var broken atomic.Bool
	lost := make(chan struct{})
	d := &Faulty{Registry: owner}
	d.OnList = func(ctx context.Context, _ string, next func(context.Context) ([]*kregistry.ServiceInstance, error)) ([]*kregistry.ServiceInstance, error) {
		if broken.Load() {
			return nil, errFault
		}
		return next(ctx)
	}
	d.OnWatch = func(ctx context.Context, _ string, next func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
		if broken.Load() {
			return nil, errFault
		}
		return cutWatcher(ctx, next, lost)
	}
	hub, events := b.hub(d)
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.knows(s, "1")
	broken.Store(true)
	close(lost)
	b.until("the subscriber is told", func() bool { return errors.Is(s.newest().Err, errFault) })
	b.never(b.threeExpiries(), "the list went", func() bool { return len(s.newest().Instances) != 1 })
	if n := events.count(registry.ReadFailed); n != 1 {
		b.Errorf("%d events for one outage", n)
	}
	broken.Store(false)
	b.must(owner.Register(b.Context(), user("2")))
	b.untilWithin(4*time.Second+b.backend.Within, "reading goes on", func() bool {
		return s.newest().Err == nil && slices.Equal(ids(s.newest().Instances), []string{"1", "2"})
	})
}

// cutWatcher is a real watcher until lost is closed.
func cutWatcher(ctx context.Context, next func(context.Context) (kregistry.Watcher, error), lost <-chan struct{}) (kregistry.Watcher, error) {
	ctx, stop := context.WithCancelCause(ctx)
	inner, err := next(ctx)
	if err != nil {
		stop(err)
		return nil, err
	}
	go func() {
		select {
		case <-lost:
			stop(errFault)
		case <-ctx.Done():
		}
	}()
	return StubWatcher{
		Answer: func() ([]*kregistry.ServiceInstance, error) {
			list, err := inner.Next()
			if err != nil {
				return nil, context.Cause(ctx)
			}
			return list, nil
		},
		Stopped: func() error { stop(nil); return inner.Stop() },
	}, nil
}

// watchEnds has the first five watches end in one way.
func watchEnds(answer func() ([]*kregistry.ServiceInstance, error)) func(*bench) {
	return func(b *bench) {
		owner := b.open()
		var opened atomic.Int64
		d := &Faulty{Registry: owner, OnWatch: func(ctx context.Context, _ string, next func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
			if opened.Add(1) <= 5 {
				return StubWatcher{Answer: answer}, nil
			}
			return next(ctx)
		}}
		b.survives(d, owner, func(events *eventLog) bool { return events.count(registry.WatchLost) == 5 })
	}
}

func watchIsNil(b *bench) {
	owner := b.open()
	var opened atomic.Int64
	d := &Faulty{Registry: owner, OnWatch: func(ctx context.Context, _ string, next func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
		if opened.Add(1) <= 5 {
			return nil, nil //nolint:nilnil // a backend's bug is what is tested
		}
		return next(ctx)
	}}
	b.survives(d, owner, func(events *eventLog) bool { return events.count(registry.WatchLost) == 5 })
}

// survives checks that a hub follows the backend again after faults.
func (b *bench) survives(d kregistry.Discovery, owner registry.Registry, faulted func(*eventLog) bool) {
	b.Helper()
	hub, events := b.hub(d)
	s, cancel := b.subscribe(hub)
	defer cancel()
	b.must(owner.Register(b.Context(), user("1")))
	b.untilWithin(10*time.Second, "the faults have happened", func() bool { return faulted(events) })
	b.untilWithin(10*time.Second, "the list is known", func() bool { return slices.Equal(ids(s.newest().Instances), []string{"1"}) })
	b.pass(4 * time.Second) // the longest pause before a watch is opened again
	b.must(owner.Register(b.Context(), user("2")))
	b.knows(s, "1", "2")
}

// subscriberPanics is invariant 12.
func subscriberPanics(b *bench) {
	owner := b.open()
	hub, events := b.hub(owner)
	cancelBad := hub.Subscribe("user", func(registry.Snapshot) { panic("injected panic") })
	defer cancelBad()
	s, cancel := b.subscribe(hub)
	defer cancel()
	for _, id := range []string{"1", "2"} {
		b.must(owner.Register(b.Context(), user(id)))
	}
	b.knows(s, "1", "2")
	b.until("events tell", func() bool { return events.count(registry.SubscriberPanicked) > 0 })
}

// lastSubscriber is invariant 1 for subscriptions.
func lastSubscriber(b *bench) {
	owner := b.open()
	var open atomic.Int64
	d := &Faulty{Registry: owner, OnWatch: func(ctx context.Context, _ string, next func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error) {
		open.Add(1)
		context.AfterFunc(ctx, func() { open.Add(-1) })
		return next(ctx)
	}}
	hub, _ := b.hub(d)
	s, cancel := b.subscribe(hub)
	other, cancelOther := b.subscribe(hub)
	b.must(owner.Register(b.Context(), user("1")))
	b.knows(s, "1")
	b.knows(other, "1")
	if n := open.Load(); n != 1 {
		b.Errorf("%d watches for two subscribers", n)
	}
	cancel()
	cancel()
	calls := s.calls.Load()
	b.must(owner.Register(b.Context(), user("2")))
	b.knows(other, "1", "2")
	cancelOther()
	b.until("the watch has stopped", func() bool { return open.Load() == 0 })
	if s.calls.Load() != calls {
		b.Error("a cancelled subscriber was called")
	}
}

func thousandSubscriptions(b *bench) {
	owner := b.open()
	b.must(owner.Register(b.Context(), user("1")))
	hub, _ := b.hub(owner)
	for i := range 1000 {
		s, cancel := b.subscribe(hub)
		if i%100 == 0 {
			b.knows(s, "1")
		}
		cancel()
	}
	b.must(hub.Close()) // in a bubble, a goroutine that is left fails the check
}
