package registry

import (
	"context"
	"errors"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// Windowed gives a registrar a propagation window: its Deregister takes the
// record away and then waits, as long as ctx allows, so that callers learn of
// it while they are still served. It is for apps that stop their servers as
// soon as Deregister returns, such as kratos.New; package app has a window of
// its own. Instances are registered through a [Registration], one per name and
// id. A window that is not positive does not wait; nor does a deregistration
// that failed, or one of an instance that was never registered.
func Windowed(r kregistry.Registrar, window time.Duration, opts ...RegistrationOption) kregistry.Registrar {
	return &windowed{registrar: r, window: window, options: opts, generations: make(map[string]*Registration)}
}

type windowed struct {
	registrar kregistry.Registrar
	window    time.Duration
	options   []RegistrationOption

	mu          sync.Mutex
	generations map[string]*Registration // registered, by name and id
}

// Register implements kratos registry.Registrar.
func (w *windowed) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	key := in.Name + "\x00" + in.ID
	w.mu.Lock()
	generation := w.generations[key]
	w.mu.Unlock()
	if generation == nil {
		generation = NewRegistration(w.registrar, in, w.options...)
	} else {
		generation = generation.Next(in)
	}
	err := generation.Register(ctx)
	if err != nil && !errors.Is(err, ErrUnconfirmed) {
		return err
	}
	w.mu.Lock()
	w.generations[key] = generation // also when it may have landed: Deregister finds out
	w.mu.Unlock()
	return err
}

// Deregister implements kratos registry.Registrar.
func (w *windowed) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	key := in.Name + "\x00" + in.ID
	w.mu.Lock()
	generation := w.generations[key]
	w.mu.Unlock()
	if generation == nil {
		return nil
	}
	if err := generation.Deregister(ctx); err != nil {
		return err
	}
	w.mu.Lock()
	delete(w.generations, key)
	w.mu.Unlock()
	if w.window <= 0 {
		return nil
	}
	timer := time.NewTimer(w.window)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done(): // gone it is all the same
	}
	return nil
}
