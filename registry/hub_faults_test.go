package registry_test

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

func TestWatcherThatAnswersAtOnceForEverIsPaced(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var answers atomic.Int64
		d := discovery{
			list: func(context.Context) ([]*kregistry.ServiceInstance, error) { return nodes("a"), nil },
			watch: func(context.Context) (kregistry.Watcher, error) {
				return stubWatcher(func() ([]*kregistry.ServiceInstance, error) { answers.Add(1); return nodes("a"), nil }), nil
			},
		}
		hub := registry.NewHub(d)
		s := &seen{}
		hub.Subscribe("user", s.take)
		time.Sleep(10 * time.Second)
		if n := answers.Load(); n > 220 {
			t.Errorf("%d answers in 10 s", n)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
}

// discovery is made of two functions.
type discovery struct {
	list  func(context.Context) ([]*kregistry.ServiceInstance, error)
	watch func(context.Context) (kregistry.Watcher, error)
}

func (d discovery) GetService(ctx context.Context, _ string) ([]*kregistry.ServiceInstance, error) {
	return d.list(ctx)
}

func (d discovery) Watch(ctx context.Context, _ string) (kregistry.Watcher, error) {
	return d.watch(ctx)
}

type stubWatcher func() ([]*kregistry.ServiceInstance, error)

func (w stubWatcher) Next() ([]*kregistry.ServiceInstance, error) { return w() }
func (stubWatcher) Stop() error                                   { return nil }

// stuckWatcher never returns from Next or Stop before it is freed.
type stuckWatcher struct{ freed chan struct{} }

func (w stuckWatcher) Next() ([]*kregistry.ServiceInstance, error) {
	<-w.freed
	return nil, errCompacted
}
func (w stuckWatcher) Stop() error { <-w.freed; return nil }

func TestInvariant12StuckBackendHoldsUpNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		freed := make(chan struct{})
		var (
			answered atomic.Bool
			hanging  atomic.Int64
		)
		d := discovery{
			list: func(context.Context) ([]*kregistry.ServiceInstance, error) {
				hanging.Add(1)
				defer hanging.Add(-1)
				if answered.CompareAndSwap(false, true) {
					return nodes("a"), nil
				}
				<-freed // ignores its ctx
				return nodes("late"), nil
			},
			watch: func(context.Context) (kregistry.Watcher, error) { return stuckWatcher{freed}, nil },
		}
		s := &seen{}
		hub := registry.NewHub(d, registry.OnEvent(s.event))
		cancel := hub.Subscribe("user", s.take)
		s.has(t, "a")
		time.Sleep(10 * time.Second)
		s.has(t, "a") // a list that hangs withdraws nobody
		if n := hanging.Load(); n != 1 {
			t.Errorf("%d lists hang at a time", n)
		}
		calls := s.calls()
		cancel()
		began := time.Now()
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
		if took := time.Since(began); took > 2*time.Second {
			t.Errorf("Close took %s", took)
		}
		synctest.Wait()
		if s.count(registry.WatcherStuck) == 0 {
			t.Error("no event tells that the watcher is stuck")
		}
		close(freed)
		synctest.Wait()
		if n := s.calls(); n != calls {
			t.Errorf("%d callbacks after cancel", n-calls)
		}
	})
}

func TestInvariant12WatchOpenedTooLateIsStopped(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var opened, stopped atomic.Int64
		d := discovery{
			list: func(context.Context) ([]*kregistry.ServiceInstance, error) { return nodes("a"), nil },
			watch: func(context.Context) (kregistry.Watcher, error) {
				opened.Add(1)
				time.Sleep(8 * time.Second)
				return countingWatcher{stopped: &stopped}, nil
			},
		}
		s := &seen{}
		hub := registry.NewHub(d)
		hub.Subscribe("user", s.take)
		time.Sleep(6 * time.Second)
		s.has(t, "a")
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
		time.Sleep(20 * time.Second)
		if opened.Load() == 0 || stopped.Load() != opened.Load() {
			t.Errorf("%d watchers opened, %d stopped", opened.Load(), stopped.Load())
		}
	})
}

type countingWatcher struct{ stopped *atomic.Int64 }

func (countingWatcher) Next() ([]*kregistry.ServiceInstance, error) { return nil, errCompacted }
func (w countingWatcher) Stop() error                               { w.stopped.Add(1); return nil }

func TestInvariant01LateResultAfterUnsubscribeReachesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		d := discovery{
			list:  func(context.Context) ([]*kregistry.ServiceInstance, error) { <-release; return nodes("a"), nil },
			watch: func(context.Context) (kregistry.Watcher, error) { return nil, errCompacted },
		}
		s := &seen{}
		hub := registry.NewHub(d, registry.OnEvent(s.event))
		cancel := hub.Subscribe("user", s.take)
		synctest.Wait()
		cancel()
		synctest.Wait()
		close(release)
		time.Sleep(time.Minute)
		if s.count(registry.ReadFailed) != 0 {
			t.Errorf("our own end is told as a failure: %v", s.events)
		}
		if n := s.calls(); n != 0 {
			t.Errorf("%d callbacks", n)
		}
		if err := hub.Close(); err != nil {
			t.Error(err)
		}
	})
}
