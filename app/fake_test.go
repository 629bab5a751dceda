package app_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/health"
)

// trace records what happened and when, in the time of the bubble.
type trace struct {
	mu    sync.Mutex
	began time.Time
	names []string
	at    map[string]time.Duration // of the last one
}

func newTrace() *trace { return &trace{began: time.Now(), at: make(map[string]time.Duration)} }

func (tr *trace) add(name string) {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.names = append(tr.names, name)
	tr.at[name] = time.Since(tr.began)
}

func (tr *trace) list() []string { tr.mu.Lock(); defer tr.mu.Unlock(); return slices.Clone(tr.names) }

func (tr *trace) count(name string) int {
	n := 0
	for _, got := range tr.list() {
		if got == name {
			n++
		}
	}
	return n
}

func (tr *trace) when(name string) time.Duration {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	return tr.at[name]
}

// gap is the time between two entries.
func (tr *trace) gap(from, to string) time.Duration { return tr.when(to) - tr.when(from) }

// hook returns a hook that is traced, takes d and ends with err.
func (tr *trace) hook(name string, d time.Duration, err error) func(context.Context) error {
	return func(ctx context.Context) error {
		tr.add(name)
		if !sleep(ctx, d) {
			return ctx.Err()
		}
		return err
	}
}

func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}

// fakeServer serves until Stop. Its fields are set before Run.
type fakeServer struct {
	tr   *trace
	name string

	startErr   error         // Start returns it after startAfter
	startAfter time.Duration // with startErr, or before it serves
	quit       chan error    // Start returns what comes here
	busy       time.Duration // Stop takes it, unless its ctx ends
	hang       chan struct{} // Stop ignores its ctx until it is closed
	lateErr    error         // Start returns it after Stop
	wantsCtx   bool          // Start ends with its ctx, not with Stop

	once     sync.Once
	stopped  chan struct{}
	mu       sync.Mutex
	startCtx context.Context
	cutCause error // ctx error that cut Stop short
}

func newFakeServer(tr *trace, name string) *fakeServer {
	return &fakeServer{tr: tr, name: name, stopped: make(chan struct{}), quit: make(chan error, 1)}
}

func (s *fakeServer) Start(ctx context.Context) error {
	s.tr.add(s.name + " start")
	s.mu.Lock()
	s.startCtx = ctx
	s.mu.Unlock()
	if s.startErr != nil {
		sleep(context.WithoutCancel(ctx), s.startAfter)
		return s.startErr
	}
	if s.wantsCtx {
		<-ctx.Done()
		return ctx.Err()
	}
	select {
	case <-s.stopped:
		return s.lateErr
	case err := <-s.quit:
		return err
	}
}

func (s *fakeServer) Stop(ctx context.Context) error {
	s.tr.add(s.name + " stop")
	if s.hang != nil {
		<-s.hang
	}
	if !sleep(ctx, s.busy) {
		s.mu.Lock()
		s.cutCause = ctx.Err()
		s.mu.Unlock()
		s.tr.add(s.name + " cut")
	}
	s.once.Do(func() { close(s.stopped) })
	s.tr.add(s.name + " stopped")
	return nil
}

// boundServer has an endpoint and, with st, a health state; ready is optional.
type boundServer struct {
	*fakeServer
	endpoint string
	err      error
	st       *health.State
}

func (s *boundServer) Endpoint() (*url.URL, error) {
	s.tr.add(s.name + " bind")
	if s.err != nil {
		return nil, s.err
	}
	return url.Parse(s.endpoint)
}

func (s *boundServer) Health() *health.State { return s.st }

type readyServer struct {
	*boundServer
	ready chan struct{}
}

func (s *readyServer) Ready() <-chan struct{} { return s.ready }

// fakeRegistrar keeps records; its functions, when set, come first.
type fakeRegistrar struct {
	tr           *trace
	onRegister   func(ctx context.Context) error
	onDeregister func(ctx context.Context) error

	mu      sync.Mutex
	records map[string]*kregistry.ServiceInstance
	ctx     context.Context // of the last Register
}

func newFakeRegistrar(tr *trace) *fakeRegistrar {
	return &fakeRegistrar{tr: tr, records: make(map[string]*kregistry.ServiceInstance)}
}

func (r *fakeRegistrar) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	r.tr.add("register")
	r.mu.Lock()
	r.ctx = ctx
	r.mu.Unlock()
	if r.onRegister != nil {
		if err := r.onRegister(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	r.records[in.ID] = in
	return nil
}

func (r *fakeRegistrar) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	r.tr.add("deregister")
	if r.onDeregister != nil {
		if err := r.onDeregister(ctx); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.records, in.ID)
	r.tr.add("deregistered")
	return nil
}

func (r *fakeRegistrar) len() int { r.mu.Lock(); defer r.mu.Unlock(); return len(r.records) }

// fakeSignals delivers signals inside a bubble.
type fakeSignals struct{ c chan<- os.Signal }

func (f *fakeSignals) option() app.Option {
	return app.Notify(func(c chan<- os.Signal, _ ...os.Signal) { f.c = c })
}

// quiet are the options of nearly every test: no real signals, no log.
func quiet(opts ...app.Option) []app.Option {
	return append([]app.Option{app.Name("svc"), app.Signal(), app.Slog(nil)}, opts...)
}

// running runs an app in the bubble.
type running struct {
	*app.App
	result chan error
}

func start(opts ...app.Option) *running {
	r := &running{App: app.New(opts...), result: make(chan error, 1)}
	go func() { r.result <- r.Run() }()
	return r
}

// started is start that waits until nothing moves for a second.
func started(t *testing.T, opts ...app.Option) *running {
	t.Helper()
	r := start(opts...)
	time.Sleep(time.Second)
	synctest.Wait()
	select {
	case err := <-r.result:
		t.Fatalf("Run returned early: %v", err)
	default:
	}
	return r
}

// end waits for Run and fails when it takes longer than limit.
func (r *running) end(t *testing.T, limit time.Duration) error {
	t.Helper()
	began := time.Now()
	select {
	case err := <-r.result:
		return err
	case <-time.After(limit):
		t.Errorf("Run has not returned within %v", limit)
		err := <-r.result
		t.Fatalf("it returned %v after %v", err, time.Since(began))
		return err
	}
}

func wantIs(t *testing.T, err error, targets ...error) {
	t.Helper()
	for _, target := range targets {
		if !errors.Is(err, target) {
			t.Errorf("error %q does not match %q", fmt.Sprint(err), target)
		}
	}
}
