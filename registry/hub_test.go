package registry_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

// fakeKV is a discovery whose watches end at once until it works.
type fakeKV struct {
	mu      sync.Mutex
	list    []*kregistry.ServiceInstance
	err     error
	works   bool
	lists   int
	watches int
	log     []string
	pushes  chan []*kregistry.ServiceInstance
	open    atomic.Int64
}

var errCompacted = errors.New("compacted")

func (f *fakeKV) set(change func()) {
	f.mu.Lock()
	defer f.mu.Unlock()
	change()
}

func (f *fakeKV) GetService(context.Context, string) ([]*kregistry.ServiceInstance, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.lists++
	f.log = append(f.log, "list")
	return f.list, f.err
}

func (f *fakeKV) Watch(ctx context.Context, _ string) (kregistry.Watcher, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.watches++
	f.log = append(f.log, "watch")
	f.open.Add(1)
	return &fakeWatcher{ctx: ctx, works: f.works, kv: f}, nil
}

type fakeWatcher struct {
	ctx   context.Context
	works bool
	kv    *fakeKV
	once  sync.Once
}

func (w *fakeWatcher) Next() ([]*kregistry.ServiceInstance, error) {
	if !w.works {
		return nil, errCompacted
	}
	select {
	case list := <-w.kv.pushes:
		return list, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

func (w *fakeWatcher) Stop() error {
	w.once.Do(func() { w.kv.open.Add(-1) })
	return nil
}

func node(id string) *kregistry.ServiceInstance {
	return &kregistry.ServiceInstance{
		ID: id, Name: "user", Metadata: map[string]string{"weight": "1"},
		Endpoints: []string{"http://" + id + ":8000", "grpc://" + id + ":9000"},
	}
}

func nodes(ids ...string) []*kregistry.ServiceInstance {
	list := make([]*kregistry.ServiceInstance, 0, len(ids))
	for _, id := range ids {
		list = append(list, node(id))
	}
	return list
}

// seen collects Snapshots and events.
type seen struct {
	mu        sync.Mutex
	snapshots []registry.Snapshot
	events    []registry.Event
}

func (s *seen) take(snapshot registry.Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.snapshots = append(s.snapshots, snapshot)
}

func (s *seen) event(e registry.Event) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.events = append(s.events, e)
}

func (s *seen) count(kind registry.EventKind) (n int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, e := range s.events {
		if e.Kind == kind {
			n++
		}
	}
	return n
}

// newest waits until everything has settled.
func (s *seen) newest() registry.Snapshot {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.snapshots) == 0 {
		return registry.Snapshot{}
	}
	return s.snapshots[len(s.snapshots)-1]
}

func (s *seen) calls() int {
	synctest.Wait()
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.snapshots)
}

func (s *seen) has(t *testing.T, want ...string) {
	t.Helper()
	var got []string
	for _, in := range s.newest().Instances {
		got = append(got, in.ID)
	}
	if !slices.Equal(got, want) {
		t.Errorf("the subscriber has %v, want %v", got, want)
	}
}

func bubbleHub(t *testing.T, kv *fakeKV, opts ...registry.HubOption) (*registry.Hub, *seen) {
	t.Helper()
	kv.pushes = make(chan []*kregistry.ServiceInstance)
	s := &seen{}
	hub := registry.NewHub(kv, append(opts, registry.OnEvent(s.event))...)
	t.Cleanup(func() {
		if err := hub.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
		if n := kv.open.Load(); n != 0 {
			t.Errorf("%d watchers were not stopped", n)
		}
	})
	return hub, s
}

func TestCaseB36EmptyPushIsHeldByDefault(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{works: true, list: nodes("a", "b")}
		hub, s := bubbleHub(t, kv)
		defer hub.Subscribe("user", s.take)()
		s.has(t, "a", "b")
		calls := s.calls()
		kv.pushes <- nil
		kv.pushes <- nodes()
		if got := s.calls(); got != calls {
			t.Errorf("%d callbacks for an empty list", got-calls)
		}
		s.has(t, "a", "b")
		if n := s.count(registry.EmptyHeld); n != 1 {
			t.Errorf("%d events, want 1", n)
		}
		kv.pushes <- nodes("c")
		s.has(t, "c")
		kv.pushes <- nil
		synctest.Wait()
		if n := s.count(registry.EmptyHeld); n != 2 {
			t.Errorf("%d events after a second outage, want 2", n)
		}
	})
}

func TestCaseB36EmptyPushIsAppliedWhenAsked(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{works: true, list: nodes("a", "b")}
		hub, s := bubbleHub(t, kv, registry.HoldEmpty(false))
		defer hub.Subscribe("user", s.take)()
		s.has(t, "a", "b")
		kv.pushes <- nil
		s.has(t)
		if newest := s.newest(); !newest.Answered || newest.Err != nil {
			t.Errorf("snapshot is %+v", newest)
		}
		kv.pushes <- []*kregistry.ServiceInstance{{ID: "garbage", Name: "user"}}
		kv.pushes <- nodes("c")
		s.has(t, "c")
		// Garbage has not said that there is nobody, whatever the option says.
		kv.pushes <- []*kregistry.ServiceInstance{{ID: "garbage", Name: "user"}}
		s.has(t, "c")
	})
}

func TestInvariant11FirstListCountsAlsoWhenEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{works: true}
		hub, s := bubbleHub(t, kv)
		defer hub.Subscribe("user", s.take)()
		if newest := s.newest(); !newest.Answered || len(newest.Instances) != 0 || newest.Err != nil {
			t.Errorf("snapshot is %+v", newest)
		}
	})
}

func TestInvariant11UnreadableIsNotEmpty(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{err: errCompacted}
		hub, s := bubbleHub(t, kv)
		defer hub.Subscribe("user", s.take)()
		if newest := s.newest(); newest.Answered || !errors.Is(newest.Err, errCompacted) {
			t.Errorf("an unread list gives %+v", newest)
		}
		kv.set(func() { kv.err, kv.list = nil, nodes("a") })
		time.Sleep(5 * time.Second)
		s.has(t, "a")
		kv.set(func() { kv.err = errCompacted })
		time.Sleep(time.Minute)
		newest := s.newest()
		if !newest.Answered || !errors.Is(newest.Err, errCompacted) || len(newest.Instances) != 1 {
			t.Errorf("after a minute unreadable: %+v", newest)
		}
		if n := s.count(registry.ReadFailed); n != 2 {
			t.Errorf("%d events for two outages", n)
		}
		kv.set(func() { kv.err = nil })
		time.Sleep(5 * time.Second)
		if newest := s.newest(); newest.Err != nil {
			t.Errorf("readable again: %+v", newest)
		}
		if n := s.count(registry.ReadRecovered); n != 2 {
			t.Errorf("%d events for two recoveries", n)
		}
	})
}

func TestCaseB37RewatchHasBackoffAndAListBeforeEach(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{list: nodes("a")}
		hub, s := bubbleHub(t, kv)
		cancel := hub.Subscribe("user", s.take)
		before := 0
		for second := range 5 {
			if second == 1 {
				kv.set(func() { kv.list = nodes("a", "b") })
			}
			if second == 3 {
				kv.set(func() { kv.works = true })
			}
			time.Sleep(time.Second)
			kv.set(func() {
				if n := kv.watches - before; n > 10 {
					t.Errorf("%d watch calls in second %d", n, second)
				}
				before = kv.watches
			})
			if second == 3 {
				s.has(t, "a", "b")
			}
		}
		kv.set(func() {
			for i, call := range kv.log {
				if call == "watch" && kv.log[i-1] != "list" {
					t.Errorf("watch %d is not preceded by a list: %v", i, kv.log)
				}
			}
		})
		cancel()
		synctest.Wait()
		kv.set(func() { before = kv.watches + kv.lists })
		time.Sleep(time.Minute)
		kv.set(func() {
			if n := kv.watches + kv.lists - before; n != 0 {
				t.Errorf("%d calls after the last subscriber left", n)
			}
		})
	})
}

func TestCaseB38ChangesBetweenListAndWatchAreSeen(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &gapKV{fakeKV: fakeKV{works: true, list: nodes("a")}}
		hub, s := bubbleHub(t, &kv.fakeKV)
		_ = hub
		gap := registry.NewHub(kv)
		defer func() { _ = gap.Close() }()
		defer gap.Subscribe("user", s.take)()
		time.Sleep(200 * time.Millisecond)
		s.has(t, "b")
	})
}

// gapKV changes its list just before a watch begins, which is silent then.
type gapKV struct{ fakeKV }

func (f *gapKV) Watch(ctx context.Context, name string) (kregistry.Watcher, error) {
	f.set(func() { f.list = nodes("b") })
	return f.fakeKV.Watch(ctx, name)
}

func TestCaseB40BadRecordsAreReportedOncePerChange(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{works: true}
		hub, s := bubbleHub(t, kv)
		defer hub.Subscribe("user", s.take)()
		bad := &kregistry.ServiceInstance{ID: "bad", Name: "user", Endpoints: []string{"grpc://:9000"}}
		for range 5 {
			kv.pushes <- append(nodes("a", "a"), nil, bad)
		}
		s.has(t, "a")
		if n := s.count(registry.RecordSkipped); n != 2 {
			t.Errorf("%d events for two bad records in five lists", n)
		}
		kv.pushes <- append(nodes("a", "b"), bad)
		s.has(t, "a", "b")
		bad = &kregistry.ServiceInstance{ID: "bad", Name: "user", Endpoints: []string{"grpc://:9001"}}
		kv.pushes <- append(nodes("a", "b"), bad)
		synctest.Wait()
		if n := s.count(registry.RecordSkipped); n != 3 {
			t.Errorf("%d events, want one more for the changed record", n)
		}
	})
}

func TestEqualPushesChangeNothingAndNothingGivenIsChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{works: true, list: nodes("a", "b")}
		hub, s := bubbleHub(t, kv)
		defer hub.Subscribe("user", s.take)()
		first := s.newest().Instances
		for range 30 {
			equal := nodes("b", "a")
			kv.pushes <- equal
			synctest.Wait()
			if equal[0].ID != "b" || equal[0].Endpoints[0] != "http://b:8000" {
				t.Fatalf("the pushed list was changed: %v", equal)
			}
		}
		if n := s.calls(); n != 1 {
			t.Errorf("%d callbacks", n)
		}
		heavier := nodes("b", "a")
		heavier[1].Metadata["weight"] = "2"
		kv.pushes <- heavier
		time.Sleep(100 * time.Millisecond) // so many equal lists in no time are paced
		newest := s.newest().Instances
		if newest[0].Metadata["weight"] != "2" || newest[0] == first[0] || newest[0] == heavier[1] {
			t.Errorf("a was not replaced by a copy: %v", newest[0])
		}
		if newest[1] != first[1] {
			t.Error("b did not change and lost its pointer")
		}
	})
}

func TestSubscriberMayCancelItselfAndASlowOneGetsTheNewest(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		kv := &fakeKV{works: true, list: nodes("a")}
		hub, s := bubbleHub(t, kv)
		var (
			once   int
			cancel func()
			ready  = make(chan struct{})
		)
		cancel = hub.Subscribe("user", func(registry.Snapshot) { <-ready; once++; cancel() })
		close(ready)
		slow := &seen{}
		gate := make(chan struct{})
		defer hub.Subscribe("user", func(snapshot registry.Snapshot) { <-gate; slow.take(snapshot) })()
		defer hub.Subscribe("user", s.take)()
		for i := range 10 {
			kv.pushes <- nodes(fmt.Sprintf("n%d", i))
		}
		s.has(t, "n9") // not held up by the slow one
		close(gate)
		slow.has(t, "n9")
		if n := slow.calls(); n > 2 {
			t.Errorf("the slow subscriber was called %d times", n)
		}
		if once != 1 {
			t.Errorf("a subscriber that cancelled itself was called %d times", once)
		}
	})
}

func TestSubscribeToAClosedHub(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hub, s := bubbleHub(t, &fakeKV{works: true})
		if err := hub.Close(); err != nil {
			t.Fatal(err)
		}
		defer hub.Subscribe("user", s.take)()
		if newest := s.newest(); !errors.Is(newest.Err, registry.ErrHubClosed) {
			t.Errorf("snapshot is %+v", newest)
		}
	})
}

func TestTenThousandInstancesOneChanged(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		ids := make([]string, 10000)
		for i := range ids {
			ids[i] = fmt.Sprintf("node-%05d", i)
		}
		kv := &fakeKV{works: true, list: nodes(ids...)}
		hub, s := bubbleHub(t, kv)
		defer hub.Subscribe("user", s.take)()
		before := s.newest().Instances
		pushed := nodes(ids...)
		pushed[5000].Metadata["weight"] = "2"
		kv.pushes <- pushed
		after := s.newest().Instances
		kept := 0
		for i := range after {
			if after[i] == before[i] {
				kept++
			}
		}
		if kept != len(ids)-1 {
			t.Errorf("%d of %d unchanged instances kept their pointer", kept, len(ids)-1)
		}
	})
}
