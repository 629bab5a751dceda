package registrytest

import (
	"context"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

// Faulty stands in front of a registry and lets a test decide what becomes of
// each call. A nil function passes the call through; next is the real call.
// The functions are set before use and may run concurrently.
type Faulty struct {
	registry.Registry
	OnRegister   func(ctx context.Context, in *kregistry.ServiceInstance, next func(context.Context) error) error
	OnDeregister func(ctx context.Context, in *kregistry.ServiceInstance, next func(context.Context) error) error
	OnList       func(ctx context.Context, name string, next func(context.Context) ([]*kregistry.ServiceInstance, error)) ([]*kregistry.ServiceInstance, error)
	OnWatch      func(ctx context.Context, name string, next func(context.Context) (kregistry.Watcher, error)) (kregistry.Watcher, error)
}

var _ registry.Registry = (*Faulty)(nil)

// Register calls OnRegister.
func (f *Faulty) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	next := func(ctx context.Context) error { return f.Registry.Register(ctx, in) }
	if f.OnRegister == nil {
		return next(ctx)
	}
	return f.OnRegister(ctx, in, next)
}

// Deregister calls OnDeregister.
func (f *Faulty) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	next := func(ctx context.Context) error { return f.Registry.Deregister(ctx, in) }
	if f.OnDeregister == nil {
		return next(ctx)
	}
	return f.OnDeregister(ctx, in, next)
}

// GetService calls OnList.
func (f *Faulty) GetService(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	next := func(ctx context.Context) ([]*kregistry.ServiceInstance, error) {
		return f.Registry.GetService(ctx, name)
	}
	if f.OnList == nil {
		return next(ctx)
	}
	return f.OnList(ctx, name, next)
}

// Watch calls OnWatch.
func (f *Faulty) Watch(ctx context.Context, name string) (kregistry.Watcher, error) {
	next := func(ctx context.Context) (kregistry.Watcher, error) { return f.Registry.Watch(ctx, name) }
	if f.OnWatch == nil {
		return next(ctx)
	}
	return f.OnWatch(ctx, name, next)
}

// StubWatcher is a watcher made of two functions; a nil Stopped does nothing.
type StubWatcher struct {
	Answer  func() ([]*kregistry.ServiceInstance, error)
	Stopped func() error
}

// Next calls Answer.
func (w StubWatcher) Next() ([]*kregistry.ServiceInstance, error) { return w.Answer() }

// Stop calls Stopped.
func (w StubWatcher) Stop() error {
	if w.Stopped == nil {
		return nil
	}
	return w.Stopped()
}
