package interop_test

import (
	"context"
	"sync"
	"testing"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// stepBound ends a wait for an event that does not come.
const stepBound = 20 * time.Second

// greeterApp is an app that serves hello.v1.Greeter and is registered.
type greeterApp struct {
	app  *app.App
	addr string

	mu    sync.Mutex
	steps map[string]chan struct{} // by the name of the step, closed when it begins
	took  map[string]time.Duration // of the steps that have ended
}

// startGreeter runs the app until the test ends. Its registry takes
// deregistration to withdraw an instance.
func startGreeter(t *testing.T, window, deregistration time.Duration, opts ...grpc.ServerOption) *greeterApp {
	t.Helper()
	g := &greeterApp{steps: make(map[string]chan struct{}), took: make(map[string]time.Duration)}
	srv := grpc.NewServer(append([]grpc.ServerOption{grpc.Address("127.0.0.1:0")}, opts...)...)
	hellov1.RegisterGreeterServer(srv, greeter.New("one"))
	up := make(chan struct{})
	g.app = app.New(
		app.Name("hello"), app.Server(srv), app.Signal(), app.PropagationWindow(window),
		app.Registrar(&slowRegistry{memory.New(), deregistration}),
		app.Events(g.note),
		app.AfterStart(func(context.Context) error { close(up); return nil }),
	)
	ran := make(chan error, 1)
	go func() { ran <- g.app.Run() }()
	select {
	case <-up:
	case err := <-ran:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := g.app.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ran; err != nil {
			t.Error(err)
		}
	})
	endpoint, err := srv.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	g.addr = endpoint.Host
	return g
}

// note keeps what the app tells of its steps.
func (g *greeterApp) note(e app.Event) {
	switch e.Kind {
	case app.StepBegan:
		close(g.began(e.Step))
	case app.StepEnded:
		g.mu.Lock()
		defer g.mu.Unlock()
		g.took[e.Step] = e.Took
	}
}

// began is closed when a step begins.
func (g *greeterApp) began(step string) chan struct{} {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.steps[step] == nil {
		g.steps[step] = make(chan struct{})
	}
	return g.steps[step]
}

// await waits until a step of the stop begins.
func (g *greeterApp) await(t *testing.T, step string) {
	t.Helper()
	bound := time.NewTimer(stepBound)
	defer bound.Stop()
	select {
	case <-g.began(step):
	case <-bound.C:
		t.Fatalf("step %q did not begin", step)
	}
}

// hasBegun tells whether a step has begun.
func (g *greeterApp) hasBegun(step string) bool {
	select {
	case <-g.began(step):
		return true
	default:
		return false
	}
}

// stop stops the app in the background; the channel gets how long it took.
func (g *greeterApp) stop(t *testing.T) <-chan time.Duration {
	t.Helper()
	done := make(chan time.Duration, 1)
	go func() {
		started := time.Now()
		if err := g.app.Stop(); err != nil {
			t.Error(err)
		}
		done <- time.Since(started)
	}()
	return done
}

// stepTook is the time of a step that has ended.
func (g *greeterApp) stepTook(step string) time.Duration {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.took[step]
}

// slowRegistry takes its time to withdraw an instance.
type slowRegistry struct {
	*memory.Registry
	deregistration time.Duration
}

// Deregister implements [kregistry.Registrar].
func (r *slowRegistry) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	timer := time.NewTimer(r.deregistration)
	defer timer.Stop()
	select {
	case <-timer.C:
		return r.Registry.Deregister(ctx, in)
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}
