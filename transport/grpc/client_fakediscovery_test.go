package grpc_test

import (
	"context"
	"errors"
	"sync"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// fakeDiscovery says what a test tells it to say.
type fakeDiscovery struct {
	mu       sync.Mutex
	list     []*kregistry.ServiceInstance
	err      error
	changed  chan struct{}
	silent   bool // never answers
	watchers int  // that are open
}

func newDiscovery(list ...*kregistry.ServiceInstance) *fakeDiscovery {
	return &fakeDiscovery{list: list, changed: make(chan struct{})}
}

// push replaces the list, or the error that is said instead.
func (d *fakeDiscovery) push(err error, list ...*kregistry.ServiceInstance) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.list, d.err = list, err
	close(d.changed)
	d.changed = make(chan struct{})
}

func (d *fakeDiscovery) read() ([]*kregistry.ServiceInstance, error, <-chan struct{}) { //nolint:revive,staticcheck // a test's own
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.list, d.err, d.changed
}

func (d *fakeDiscovery) GetService(ctx context.Context, _ string) ([]*kregistry.ServiceInstance, error) {
	if d.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	list, err, _ := d.read()
	return list, err
}

func (d *fakeDiscovery) Watch(ctx context.Context, _ string) (kregistry.Watcher, error) {
	if d.silent {
		<-ctx.Done()
		return nil, ctx.Err()
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	d.watchers++
	ctx, cancel := context.WithCancel(ctx)
	return &fakeWatcher{discovery: d, ctx: ctx, cancel: cancel}, nil
}

type fakeWatcher struct {
	discovery *fakeDiscovery
	ctx       context.Context
	cancel    context.CancelFunc
	once      sync.Once
	seen      <-chan struct{}
}

func (w *fakeWatcher) Next() ([]*kregistry.ServiceInstance, error) {
	if w.seen != nil {
		select {
		case <-w.seen:
		case <-w.ctx.Done():
			return nil, w.ctx.Err()
		}
	}
	list, err, changed := w.discovery.read()
	w.seen = changed
	return list, err
}

func (w *fakeWatcher) Stop() error {
	w.cancel()
	w.once.Do(func() {
		w.discovery.mu.Lock()
		defer w.discovery.mu.Unlock()
		w.discovery.watchers--
	})
	return nil
}

var errRegistry = errors.New("the registry is on fire")

// instanceOf is a fresh record of "greeter".
func instanceOf(id, address string, metadata ...string) *kregistry.ServiceInstance {
	in := &kregistry.ServiceInstance{
		ID: id, Name: "greeter", Endpoints: []string{"grpc://" + address}, Metadata: make(map[string]string),
	}
	for i := 0; i < len(metadata); i += 2 {
		in.Metadata[metadata[i]] = metadata[i+1]
	}
	return in
}
