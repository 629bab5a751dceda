package grpc

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/url"
	"time"

	klog "github.com/go-kratos/kratos/v2/log"
	kmiddleware "github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/health"
)

// ServerOption configures a [Server]. Options add up: one that takes a list
// appends to what earlier ones gave, one that takes a value replaces it.
type ServerOption func(o *Server)

// Default numbers of a server; [NewServer] tells them.
const (
	defaultExitWait         = 5 * time.Second
	serverStreams           = 1024
	serverHeaderList        = 16 << 10
	serverMessage           = 4 << 20
	serverPingInterval      = 10 * time.Second
	unlimitedServerDuration = 10 * 365 * 24 * time.Hour // longer ones mean none
)

type serverOptions struct {
	network           string
	address           string
	endpoint          *url.URL
	listener          net.Listener
	tls               *tls.Config
	timeout           time.Duration
	exitWait          *time.Duration // nil: not given
	name              string
	maxConnections    int
	middleware        middlewareSet
	streamMiddleware  middlewareSet
	unary             []stdgrpc.UnaryServerInterceptor
	stream            []stdgrpc.StreamServerInterceptor
	grpc              []stdgrpc.ServerOption
	admissions        []Admission
	tracers           []materpc.Tracer
	events            []materpc.EventHandler
	unknown           stdgrpc.StreamHandler
	health            *health.State
	customHealth      bool
	disableReflection bool
	slog              *slog.Logger
	klog              klog.Logger
	early             []error // faults that only the option itself can see
}

func defaultServerOptions() serverOptions {
	return serverOptions{network: "tcp", address: ":0"}
}

// fault notes what only the option itself can see.
func (o *serverOptions) fault(format string, args ...any) {
	o.early = append(o.early, fmt.Errorf("transport/grpc: "+format, args...))
}

// faults returns all that is wrong with the options.
func (o *serverOptions) faults() []error {
	found := o.early
	fault := func(wrong bool, format string, args ...any) {
		if wrong {
			found = append(found, fmt.Errorf("transport/grpc: "+format, args...))
		}
	}
	fault(o.timeout < 0, "Timeout %v is negative; 0 means none", o.timeout)
	if o.exitWait != nil {
		fault(*o.exitWait < 0, "ExitWait %v is negative; 0 aborts running handlers at once", *o.exitWait)
	}
	fault(o.maxConnections < 0, "MaxConnections %d is negative; 0 means unlimited", o.maxConnections)
	fault(o.endpoint != nil && !publishable(o.endpoint), "Endpoint %q cannot be dialled; want grpc://host:port, grpcs://host:port or unix:path", o.endpoint)
	if o.timeout > unlimitedServerDuration {
		o.timeout = 0
	}
	return found
}

// publishable reports whether a client can dial what u says.
func publishable(u *url.URL) bool {
	switch u.Scheme {
	case "unix":
		return u.Path != "" || u.Opaque != ""
	case "grpc", "grpcs":
		return u.Hostname() != "" && u.Port() != ""
	}
	return false
}

// grpcOptions are ours; the user's follow them. Only Chain options are used: a
// second single-slot option panics in grpc-go.
func (s *Server) grpcOptions() []stdgrpc.ServerOption {
	opts := []stdgrpc.ServerOption{
		stdgrpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: serverPingInterval, PermitWithoutStream: true}),
		stdgrpc.MaxConcurrentStreams(serverStreams),
		stdgrpc.MaxHeaderListSize(serverHeaderList),
		stdgrpc.MaxRecvMsgSize(serverMessage),
		stdgrpc.MaxSendMsgSize(serverMessage),
		stdgrpc.WaitForHandlers(true),
		stdgrpc.UnknownServiceHandler(s.unknown.serveStream),
		stdgrpc.ChainUnaryInterceptor(append([]stdgrpc.UnaryServerInterceptor{s.interceptUnary}, s.options.unary...)...),
		stdgrpc.ChainStreamInterceptor(append([]stdgrpc.StreamServerInterceptor{s.interceptStream}, s.options.stream...)...),
	}
	if s.options.tls != nil {
		opts = append(opts, stdgrpc.Creds(credentials.NewTLS(s.options.tls)))
	}
	return opts
}

// Network sets the network to listen on, "tcp" by default.
func Network(network string) ServerOption {
	return func(s *Server) { s.options.network = network }
}

// Address sets the address to listen on, ":0" by default.
func Address(addr string) ServerOption {
	return func(s *Server) { s.options.address = addr }
}

// Endpoint sets the URL to publish, verbatim; by default, and with nil, it
// follows from the bound address. A URL that no client can dial is a fault.
func Endpoint(endpoint *url.URL) ServerOption {
	return func(s *Server) { s.options.endpoint = endpoint }
}

// Listener serves on lis instead of binding Network and Address; nil changes
// nothing. The server closes it.
func Listener(lis net.Listener) ServerOption {
	return func(s *Server) { s.options.listener = lis }
}

// TLSConfig serves with TLS and publishes a grpcs endpoint. With nil the server
// speaks plaintext, as Kratos's does.
func TLSConfig(c *tls.Config) ServerOption {
	return func(s *Server) { s.options.tls = c }
}

// Timeout bounds the ctx of every unary handler; a caller's shorter deadline
// stays. 0, the default, is none; a negative one is a fault.
func Timeout(timeout time.Duration) ServerOption {
	return func(s *Server) { s.options.timeout = timeout }
}

// Logger takes the warnings of the server, as [Slog] does.
func Logger(logger klog.Logger) ServerOption {
	return func(s *Server) { s.options.klog = logger }
}

// Slog takes the warnings of the server: streams without middlewares, selectors
// that name nothing, services registered too late. Without it and [Logger] they
// go to slog.Default().
func Slog(logger *slog.Logger) ServerOption {
	return func(s *Server) { s.options.slog = logger }
}

// Middleware adds middlewares for unary methods, the first outermost.
func Middleware(m ...kmiddleware.Middleware) ServerOption {
	return func(s *Server) { s.options.middleware.use(given(s.options.fault, "Middleware", m)) }
}

// StreamMiddleware adds middlewares for streams. They run once around the
// whole life of a stream: req is a [*Stream], the reply nil, and next returns
// when the handler returns. A ctx passed on reaches the handler through
// Context(), a grpc.ServerStream passed on as req replaces the stream.
func StreamMiddleware(m ...kmiddleware.Middleware) ServerOption {
	return func(s *Server) { s.options.streamMiddleware.use(given(s.options.fault, "StreamMiddleware", m)) }
}

// UnaryInterceptor adds interceptors inside the middlewares.
func UnaryInterceptor(in ...stdgrpc.UnaryServerInterceptor) ServerOption {
	return func(s *Server) {
		s.options.unary = append(s.options.unary, given(s.options.fault, "UnaryInterceptor", in)...)
	}
}

// StreamInterceptor adds interceptors inside the gate, around the stream
// middlewares' handler.
func StreamInterceptor(in ...stdgrpc.StreamServerInterceptor) ServerOption {
	return func(s *Server) {
		s.options.stream = append(s.options.stream, given(s.options.fault, "StreamInterceptor", in)...)
	}
}

// Options adds options of grpc-go; they come after ours and win. A raw
// grpc.UnaryInterceptor stays outside the middlewares, a raw
// grpc.StreamInterceptor outside the gate; use the Chain forms. A raw
// grpc.UnknownServiceHandler bypasses the gate; use [UnknownService].
func Options(opts ...stdgrpc.ServerOption) ServerOption {
	return func(s *Server) { s.options.grpc = append(s.options.grpc, given(s.options.fault, "Options", opts)...) }
}

// UnknownService handles calls of methods that nobody registered. It passes
// the gate and the chain like any method; by default the answer is Unimplemented.
func UnknownService(handler stdgrpc.StreamHandler) ServerOption {
	return func(s *Server) { s.options.unknown = handler }
}

// CustomHealth leaves the health service to the application.
func CustomHealth() ServerOption {
	return func(s *Server) { s.options.customHealth = true }
}

// HealthState shares a health state, for instance with HTTP probes; by default
// the server makes its own.
func HealthState(state *health.State) ServerOption {
	return func(s *Server) {
		if state == nil {
			s.options.fault("HealthState is nil; leave the option out for a state of the server's own")
		}
		s.options.health = state
	}
}

// DisableReflection leaves out the reflection services.
func DisableReflection() ServerOption {
	return func(s *Server) { s.options.disableReflection = true }
}

// Name sets the service name that calls report as their destination; by
// default it is the name of the app that starts the server.
func Name(name string) ServerOption {
	return func(s *Server) { s.options.name = name }
}

// Admit adds admissions to the gate, asked in order, the first refusal counts.
func Admit(admissions ...Admission) ServerOption {
	return func(s *Server) {
		s.options.admissions = append(s.options.admissions, given(s.options.fault, "Admit", admissions)...)
	}
}

// Tracers adds tracers, the first outermost.
func Tracers(tracers ...materpc.Tracer) ServerOption {
	return func(s *Server) {
		s.options.tracers = append(s.options.tracers, given(s.options.fault, "Tracers", tracers)...)
	}
}

// Events adds event handlers.
func Events(handlers ...materpc.EventHandler) ServerOption {
	return func(s *Server) {
		s.options.events = append(s.options.events, given(s.options.fault, "Events", handlers)...)
	}
}

// ExitWait is how long Stop lets running handlers go on at most; the deadline of
// Stop's ctx may end it sooner. By default that deadline alone counts, which is
// app.ExitWait under an app, and without one it is 5 s. 0 aborts them at once; a
// negative one is a fault.
func ExitWait(d time.Duration) ServerOption {
	return func(s *Server) { s.options.exitWait = &d }
}

// MaxConnections bounds the connections from Accept on, TLS handshakes
// included: one more is closed at once, with an event. 0, the default, is
// unlimited; a negative one is a fault. Counting hides the *net.TCPConn from
// grpc-go, which then sets no TCP_USER_TIMEOUT.
func MaxConnections(n int) ServerOption {
	return func(s *Server) { s.options.maxConnections = n }
}
