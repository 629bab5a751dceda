package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"reflect"
	"sync"
	"sync/atomic"

	kratos "github.com/go-kratos/kratos/v2"
	kmiddleware "github.com/go-kratos/kratos/v2/middleware"
	ktransport "github.com/go-kratos/kratos/v2/transport"
	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/health"
)

var (
	_ ktransport.Server     = (*Server)(nil)
	_ ktransport.Endpointer = (*Server)(nil)
)

// Server is a gRPC server with a gate in front of every method. It embeds the
// real *grpc.Server; services are registered on the Server itself, as generated
// code does it, never on the embedded one: [Server.Start] refuses to serve a
// service that would bypass the gate.
//
// Methods are safe for concurrent use, except that RegisterService and Use
// belong before Start.
type Server struct {
	*stdgrpc.Server
	options   serverOptions
	observers observers
	health    *health.State
	chain     serverHandler
	unknown   *serverMethod

	ownInterceptor uintptr // code of interceptUnary, to know it again

	identity atomic.Pointer[serverIdentity]
	draining atomic.Pointer[drainMark]
	inflight inflight
	ending   chan struct{}  // closed when built-in streams must end
	workers  sync.WaitGroup // goroutines of built-in streams
	ready    chan struct{}  // closed when the first connection can be accepted
	over     chan struct{}  // closed when Stop is done
	serving  sync.Once

	connections atomic.Int64 // counted where they are bounded

	mu       sync.Mutex
	faults   []error
	methods  map[string]*serverMethod // by full method; read without mu once serving
	services map[string]struct{}
	listener net.Listener
	endpoint *url.URL
	started  bool
	managed  bool // an app sets the phase of health
	stop     *stopping
}

// serverIdentity is what a call reads of the process it runs in.
type serverIdentity struct {
	id       string
	name     string
	endpoint string
	base     context.Context // Start's: its values are visible in handlers
}

// NewServer makes a server. It does no I/O: faults of the options surface, all
// at once, in [Server.Endpoint] and [Server.Start].
//
// Defaults: network tcp, address ":0", no timeout, exit wait 5 s, the gRPC
// health service and reflection (v1 and v1alpha), 1,024 streams per
// connection, 16 KB of request headers, 4 MB messages both ways, client pings
// at most every 10 s, stream or not. [Options] come after these and win.
func NewServer(opts ...ServerOption) *Server {
	s := &Server{
		options:  defaultServerOptions(),
		ending:   make(chan struct{}),
		ready:    make(chan struct{}),
		over:     make(chan struct{}),
		methods:  make(map[string]*serverMethod),
		services: make(map[string]struct{}),
		inflight: inflight{changed: make(chan struct{}, 1)},
	}
	for _, apply := range opts {
		if apply != nil {
			apply(s)
		}
	}
	s.faults = s.options.faults()
	s.observers = observers{tracers: s.options.tracers, handlers: s.options.events}
	s.health = s.options.health
	if s.health == nil {
		s.health = health.New()
	}
	s.identity.Store(&serverIdentity{name: s.options.name})
	s.chain = s.compileChain()
	s.unknown = s.unknownMethod()
	s.ownInterceptor = reflect.ValueOf(s.interceptUnary).Pointer()
	s.Server = s.newGRPCServer()
	if !s.options.customHealth {
		registerHealth(s)
	}
	if !s.options.disableReflection {
		registerReflection(s)
	}
	return s
}

// newGRPCServer builds the embedded server. grpc-go panics on contradictory
// options (two single-slot interceptors); that becomes a fault of Options.
func (s *Server) newGRPCServer() (server *stdgrpc.Server) {
	own := s.grpcOptions()
	defer func() {
		if p := recover(); p != nil {
			s.faults = append(s.faults, fmt.Errorf("transport/grpc: Options: grpc-go refuses them: %v; give each single option once, or use its Chain form", p))
			server = stdgrpc.NewServer(own...)
		}
	}()
	return stdgrpc.NewServer(append(own[:len(own):len(own)], s.options.grpc...)...)
}

// Use adds middlewares for the unary methods that selector names: all of them
// ("/*"), those of a service ("/helloworld.v1.Greeter/*"), or one
// ("/helloworld.v1.Greeter/SayHello"). An exact selector wins over a prefix, a
// long prefix over a short one; those of [Middleware] always come first.
// Using a selector again adds to it.
func (s *Server) Use(selector string, m ...kmiddleware.Middleware) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fault := func(format string, args ...any) {
		s.faults = append(s.faults, fmt.Errorf("transport/grpc: "+format, args...))
	}
	s.options.middleware.add(selector, given(fault, fmt.Sprintf("Use(%q)", selector), m))
	for _, method := range s.methods {
		method.compile()
	}
}

// Health returns the state behind the health service: the application sets its
// statuses and checks there.
func (s *Server) Health() *health.State { return s.health }

// Ready is closed once the server accepts connections. It stays open when the
// server is stopped before that.
func (s *Server) Ready() <-chan struct{} { return s.ready }

// InstanceMetadata is what an app registers about this server: that calls pass
// a gate, so a client can tell a refusal of the instance from one it relays.
func (s *Server) InstanceMetadata() map[string]string { return map[string]string{gatedKey: "1"} }

// InstanceID returns the id under which the app registers this server, known
// from Start on; "" outside an app. Proofs carry it.
func (s *Server) InstanceID() string { return s.identity.Load().id }

// Start binds (unless Endpoint has) and serves until [Server.Stop], then
// returns nil, also when Stop came first. It returns an error, and serves
// nothing, when options contradict each other, the address cannot be bound, or
// a service bypasses the gate. ctx is not kept beyond its values, which
// handlers see; its end does not stop the server.
func (s *Server) Start(ctx context.Context) error {
	listener, err := s.prepare(ctx)
	if err != nil || listener == nil {
		return err
	}
	s.warnStreams()
	s.warnSelectors()
	return s.serveOn(listener)
}

// Serve serves on a listener of the caller's, for those who do not use Start.
// It checks and returns as Start does.
func (s *Server) Serve(listener net.Listener) error {
	s.mu.Lock()
	err := s.checkLocked()
	if err == nil && s.stop == nil && !s.started {
		s.beginLocked()
	}
	s.mu.Unlock()
	if err != nil {
		_ = listener.Close() // err says why nothing is served
		return err
	}
	return s.serveOn(listener)
}

// serveOn returns when Stop is done: grpc-go's Serve would wait for handlers
// that were left behind.
func (s *Server) serveOn(listener net.Listener) error {
	served := make(chan error, 1)
	go func() { served <- s.Server.Serve(&gateListener{Listener: listener, server: s}) }()
	var err error
	select {
	case err = <-served:
	case <-s.over:
	}
	if err == nil || errors.Is(err, stdgrpc.ErrServerStopped) || s.stopped() {
		return nil
	}
	return fmt.Errorf("transport/grpc: serve on %s: %w", listener.Addr(), err)
}

// prepare does all that can fail before the first connection. A nil listener
// without an error means that Stop came first.
func (s *Server) prepare(ctx context.Context) (net.Listener, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return nil, nil
	}
	if s.started {
		return nil, errors.New("transport/grpc: Start was called twice; give an app each server once, and make a new server for a second life")
	}
	if err := errors.Join(s.checkLocked(), s.bindLocked()); err != nil {
		s.unbindLocked() // nothing half-started stays
		return nil, err
	}
	s.managed = health.Managed(ctx)
	s.identify(ctx)
	s.beginLocked()
	return s.listener, nil
}

// beginLocked starts the life of the server. A shared health state may have
// seen another server's life end.
func (s *Server) beginLocked() {
	s.started = true
	if !s.managed && s.health.Phase() > health.Ready {
		s.health.SetPhase(health.Starting)
	}
}

// identify takes the id from the app that registers this server: a server
// whose own id differs from the registered one would lose all its proofs.
func (s *Server) identify(ctx context.Context) {
	next := &serverIdentity{name: s.options.name, base: context.WithoutCancel(ctx)}
	if app, ok := kratos.FromContext(ctx); ok {
		next.id = app.ID()
		if next.name == "" {
			next.name = app.Name()
		}
	}
	if s.endpoint != nil {
		next.endpoint = s.endpoint.String()
	}
	s.identity.Store(next)
}

// checkLocked joins the faults of the options with the services that were
// registered past the gate.
func (s *Server) checkLocked() error {
	found := append([]error(nil), s.faults...)
	for name := range s.Server.GetServiceInfo() {
		if _, gated := s.services[name]; !gated {
			found = append(found, fmt.Errorf("transport/grpc: service %q was registered on the embedded *grpc.Server and bypasses the gate; register it on the *Server itself", name))
		}
	}
	return errors.Join(found...)
}

// onServing runs when the listener is asked for its first connection.
func (s *Server) onServing() {
	s.serving.Do(func() {
		s.mu.Lock()
		managed := s.managed
		s.mu.Unlock()
		if !managed {
			s.health.SetPhase(health.Ready) // forward only: a Stop that was faster stays
		}
		close(s.ready)
	})
}

// emit tells whoever listens.
func (s *Server) emit(e materpc.Event) {
	if s.observers.watching() {
		s.observers.emit(e)
	}
}
