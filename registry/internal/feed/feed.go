package feed

import (
	"context"
	"sync"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

// Feed is a Watcher fed with whole lists. Safe for concurrent use.
type Feed struct {
	ctx    context.Context
	cancel context.CancelFunc
	wake   chan struct{} // has room for one

	mu     sync.Mutex
	newest []*kregistry.ServiceInstance // never changed once pushed
	taken  []*kregistry.ServiceInstance // what Next returned last
}

var _ kregistry.Watcher = (*Feed)(nil)

// New returns a feed that ends with ctx or with Stop.
func New(ctx context.Context) *Feed {
	ctx, cancel := context.WithCancel(ctx)
	return &Feed{ctx: ctx, cancel: cancel, wake: make(chan struct{}, 1)}
}

// OnEnd has fn called once when the feed ends, by Stop or with its ctx.
func (f *Feed) OnEnd(fn func()) { context.AfterFunc(f.ctx, fn) }

// Push makes a list the newest. The feed copies what Next returns, so the
// list must not change afterwards but may be shared.
func (f *Feed) Push(list []*kregistry.ServiceInstance) {
	f.mu.Lock()
	f.newest = list
	f.mu.Unlock()
	select {
	case f.wake <- struct{}{}:
	default:
	}
}

// Next blocks until the list differs from the one it returned last (nothing,
// at first) and returns a deep copy, or the error of the ctx that ended;
// context.Canceled after Stop.
func (f *Feed) Next() ([]*kregistry.ServiceInstance, error) {
	for {
		if err := f.ctx.Err(); err != nil {
			return nil, err
		}
		if list, ok := f.take(); ok {
			return registry.CloneAll(list), nil
		}
		select {
		case <-f.wake:
		case <-f.ctx.Done():
		}
	}
}

func (f *Feed) take() ([]*kregistry.ServiceInstance, bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if registry.EqualLists(f.taken, f.newest) {
		return nil, false
	}
	f.taken = f.newest
	return f.taken, true
}

// Stop ends the feed; a blocked Next returns. It may be called again.
func (f *Feed) Stop() error {
	f.cancel()
	return nil
}
