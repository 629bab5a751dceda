package app

import (
	"context"
	"errors"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/registry"
)

var (
	// ErrRunTwice is returned by every Run but the first.
	ErrRunTwice = errors.New("app: Run was called before: an App runs once, make a new one")
	// ErrPanic is in the error of a hook, server or registrar that panicked.
	ErrPanic = errors.New("panic")
	// ErrLeftBehind is in the error of a hook, server or registrar that did not
	// return when its time was over. Its goroutine ends when that code returns.
	ErrLeftBehind = errors.New("left behind, it did not return in time")
)

// App is one run of a service. All methods are safe for concurrent use.
type App struct {
	opts     options
	queue    *eventQueue
	instance atomic.Pointer[registry.ServiceInstance]

	asked context.Context // ends when a stop is asked for
	ask   context.CancelFunc

	mu    sync.Mutex
	begun bool
	done  chan struct{} // closed when Run has ended; err is final then
	err   error
}

// New returns an app that is not running. It does no I/O; faults of options
// surface in Run, all at once. Options that cannot fit together are warnings.
func New(opts ...Option) *App {
	o := newOptions(opts)
	if o.logger != nil {
		log.SetLogger(o.logger) // as Kratos: its middlewares log there
	}
	a := &App{opts: o, queue: newEventQueue(o), done: make(chan struct{})}
	a.asked, a.ask = context.WithCancel(context.Background())
	if text := overbooked(&o); text != "" {
		a.queue.deliver(Event{Kind: Warning, Text: text})
	}
	return a
}

// ID returns the instance id.
func (a *App) ID() string { return a.opts.id }

// Name returns the service name.
func (a *App) Name() string { return a.opts.name }

// Version returns the service version.
func (a *App) Version() string { return a.opts.version }

// Metadata returns a copy of the service metadata.
func (a *App) Metadata() map[string]string { return maps.Clone(a.opts.metadata) }

// Endpoint returns a copy of the endpoints that are registered; nil before the
// servers are bound.
func (a *App) Endpoint() []string {
	if in := a.instance.Load(); in != nil {
		return slices.Clone(in.Endpoints)
	}
	return nil
}

// Run starts the app and blocks until it has stopped: by a signal, by Stop or
// Drain, by the end of the parent ctx or because a server failed. It returns nil
// after a stop without errors, else the root error joined with what failed
// during the stop, in order. After Stop it returns nil at once. Run works once.
func (a *App) Run() error {
	a.mu.Lock()
	if a.begun {
		a.mu.Unlock()
		return ErrRunTwice
	}
	a.begun = true
	a.mu.Unlock()

	if a.asked.Err() == nil && a.opts.ctx.Err() == nil {
		a.err = newRun(a).run()
	}
	a.ask()
	close(a.done)
	return a.err
}

// Stop asks for a graceful stop, waits until Run has ended and returns what Run
// returns; every Stop returns the same. During the start it ends the start.
// Before Run it returns nil at once and Run will start nothing.
//
// From inside a hook or a handler use `go a.Stop()`: the app waits for them.
func (a *App) Stop() error {
	a.ask()
	a.mu.Lock()
	begun := a.begun
	a.mu.Unlock()
	if !begun {
		return nil
	}
	<-a.done
	return a.err
}

// Drain is Stop under the name that operators of gRPC services look for: the
// same steps, the same result.
func (a *App) Drain() error { return a.Stop() }
