package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"time"

	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/middleware"
	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/selector"
)

// ClientOption configures a client. Options add up: one given twice adds to,
// or for single values replaces, the first.
type ClientOption func(o *clientOptions)

type clientOptions struct {
	endpoint    string
	name        string
	destination string
	secure      bool // Dial: TLS unless credentials are given
	credentials credentials.TransportCredentials
	discovery   kregistry.Discovery
	hub         *registry.Hub
	observers   observers
	unaryUser   []middleware.Middleware
	streamUser  []middleware.Middleware
	attempts    []stdgrpc.UnaryClientInterceptor
	streamTries []stdgrpc.StreamClientInterceptor
	filters     []kselector.NodeFilter
	hashKey     func(context.Context) string
	strategy    selector.Strategy
	timeout     time.Duration
	subset      int
	drainGrace  time.Duration
	closeWait   time.Duration
	connectWait time.Duration
	healthCheck bool
	dialOptions []stdgrpc.DialOption
	faults      []error
}

// apply runs the options; a nil one is none.
func (o *clientOptions) apply(opts []ClientOption) {
	for _, opt := range opts {
		if opt != nil {
			opt(o)
		}
	}
}

func (o *clientOptions) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Errorf(format, args...))
}

// duration checks a duration that may be 0 but not negative; one of more than
// 30 days is unlimited, so that it is never announced to a peer.
func (o *clientOptions) duration(name string, d time.Duration) time.Duration {
	if d < 0 {
		o.fault("%s(%v): is negative; want 0 for none or a positive duration", name, d)
		return 0
	}
	if d > unlimited {
		return 0
	}
	return d
}

// unlimited is the duration from which a timeout is none.
const unlimited = 30 * 24 * time.Hour

// WithEndpoint sets the target of [Dial] and [DialInsecure]; see [NewClient],
// which has its own and takes no other.
func WithEndpoint(endpoint string) ClientOption {
	return func(o *clientOptions) { o.endpoint = endpoint }
}

// WithName sets the calling service's name, which callees see as the caller.
// Default: empty.
func WithName(name string) ClientOption { return func(o *clientOptions) { o.name = name } }

// WithDestination sets the called service's name. Default: the name of a
// discovery target, else the host.
func WithDestination(name string) ClientOption {
	return func(o *clientOptions) { o.destination = name }
}

// WithInsecure uses connections without transport security.
func WithInsecure() ClientOption {
	return WithCredentials(insecure.NewCredentials())
}

// WithCredentials sets the transport credentials.
func WithCredentials(c credentials.TransportCredentials) ClientOption {
	return func(o *clientOptions) {
		if c == nil {
			o.fault("WithCredentials(nil): want credentials, or WithInsecure")
			return
		}
		o.credentials = c
	}
}

// WithTLSConfig sets TLS credentials; nil sets nothing, as with Kratos. Its
// ServerName is best left empty: the name then comes from the instance or the
// target. Of several options for credentials the last counts.
func WithTLSConfig(c *tls.Config) ClientOption {
	return func(o *clientOptions) {
		if c != nil {
			o.credentials = credentials.NewTLS(c)
		}
	}
}

// WithDiscovery sets the registry behind discovery:/// targets: any Kratos
// Discovery. The client watches it through a hub of its own; see [WithHub].
func WithDiscovery(d kregistry.Discovery) ClientOption {
	return func(o *clientOptions) {
		if absent(d) {
			o.fault("WithDiscovery: the registry is nil; want an open one, see registry.Open")
			return
		}
		o.discovery = d
	}
}

// WithHub sets a hub behind discovery:/// targets, so that clients share its
// watches. It wins over [WithDiscovery] and is not closed with the client.
func WithHub(h *registry.Hub) ClientOption {
	return func(o *clientOptions) { o.hub = h }
}

// WithTimeout bounds a logical unary call, moves included. It never extends
// the caller's deadline; when it fires the kind is RPCTimeout. Default 0: none.
func WithTimeout(timeout time.Duration) ClientOption {
	return func(o *clientOptions) { o.timeout = o.duration("WithTimeout", timeout) }
}

// WithMiddleware adds Kratos middlewares for unary calls, once per call,
// outermost first, in one order with [WithCallInterceptor].
func WithMiddleware(m ...middleware.Middleware) ClientOption {
	return func(o *clientOptions) {
		o.unaryUser = append(o.unaryUser, given(o.fault, "WithMiddleware", m)...)
	}
}

// WithStreamMiddleware adds Kratos middlewares for streams, once per stream:
// next returns when the stream is established, its reply is the
// grpc.ClientStream. A layer that needs the end of the call registers on
// materpc.FromContext(ctx) with OnFinish.
func WithStreamMiddleware(m ...middleware.Middleware) ClientOption {
	return func(o *clientOptions) {
		o.streamUser = append(o.streamUser, given(o.fault, "WithStreamMiddleware", m)...)
	}
}

// WithCallInterceptor adds interceptors that run once per logical unary call,
// around all its attempts and moves.
func WithCallInterceptor(in ...stdgrpc.UnaryClientInterceptor) ClientOption {
	return func(o *clientOptions) {
		for _, interceptor := range given(o.fault, "WithCallInterceptor", in) {
			o.unaryUser = append(o.unaryUser, callInterceptor(interceptor))
		}
	}
}

// WithStreamCallInterceptor adds interceptors that run once per logical
// stream, around all attempts to open it, in one order with
// [WithStreamMiddleware].
func WithStreamCallInterceptor(in ...stdgrpc.StreamClientInterceptor) ClientOption {
	return func(o *clientOptions) {
		for _, interceptor := range given(o.fault, "WithStreamCallInterceptor", in) {
			o.streamUser = append(o.streamUser, callStreamInterceptor(interceptor))
		}
	}
}

// WithUnaryInterceptor adds interceptors that run once per attempt, inside
// ours.
func WithUnaryInterceptor(in ...stdgrpc.UnaryClientInterceptor) ClientOption {
	return func(o *clientOptions) {
		o.attempts = append(o.attempts, given(o.fault, "WithUnaryInterceptor", in)...)
	}
}

// WithStreamInterceptor adds stream interceptors that run once per attempt to
// open a stream, inside ours.
func WithStreamInterceptor(in ...stdgrpc.StreamClientInterceptor) ClientOption {
	return func(o *clientOptions) {
		o.streamTries = append(o.streamTries, given(o.fault, "WithStreamInterceptor", in)...)
	}
}

// WithNodeFilter adds Kratos filters, evaluated on every pick over the READY
// instances. When they refuse all of these they are also shown the connecting
// and the sleeping instances, see [WithSubset]: the client connects to those
// that they accept, and to no others. They must be safe for concurrent use.
func WithNodeFilter(filters ...kselector.NodeFilter) ClientOption {
	return func(o *clientOptions) {
		o.filters = append(o.filters, given(o.fault, "WithNodeFilter", filters)...)
	}
}

// WithStrategy sets the load-balancing strategy. Default: p2c.
func WithStrategy(s selector.Strategy) ClientOption {
	return func(o *clientOptions) {
		if s == nil {
			o.fault("WithStrategy(nil): want a strategy such as p2c.Strategy()")
			return
		}
		o.strategy = s
	}
}

// WithHashKey reads the key of a call from its ctx for strategies that hash
// (chash); "" means none. It runs on every pick.
func WithHashKey(key func(context.Context) string) ClientOption {
	return func(o *clientOptions) { o.hashKey = key }
}

// WithSubset bounds to how many instances the client connects; it widens when
// all of them are failing, draining or tried, and shrinks back once as many as
// the subset has were READY for a minute. What a [WithNodeFilter] accepts beyond
// it adds at most as many again. An instance that a new one displaces stays in
// use until the new one is READY; its running calls then end by themselves.
// Default 25, 0 connects to all.
func WithSubset(size int) ClientOption {
	return func(o *clientOptions) {
		if size < 0 {
			o.fault("WithSubset(%d): is negative; want 0 for all or a positive number", size)
			return
		}
		o.subset = size
	}
}

// WithDrainGrace bounds how long calls run on at an instance that discovery
// has withdrawn (not at one that has only left the subset); then they end as ConnectionLost. Default 30 s, 0 ends them at
// once. It needs credentials given by an option of this package.
func WithDrainGrace(d time.Duration) ClientOption {
	return func(o *clientOptions) {
		if d < 0 {
			o.fault("WithDrainGrace(%v): is negative; want 0 or a positive duration", d)
			return
		}
		o.drainGrace = d
	}
}

// WithCloseWait bounds how long [Close] lets running calls finish. Default 5 s.
func WithCloseWait(d time.Duration) ClientOption {
	return func(o *clientOptions) {
		if d < 0 {
			o.fault("WithCloseWait(%v): is negative; want 0 or a positive duration", d)
			return
		}
		o.closeWait = d
	}
}

// WithConnectTimeout bounds one attempt to connect. Default 3 s.
func WithConnectTimeout(d time.Duration) ClientOption {
	return func(o *clientOptions) {
		if d <= 0 {
			o.fault("WithConnectTimeout(%v): want a positive duration", d)
			return
		}
		o.connectWait = d
	}
}

// WithHealthCheck watches each instance's health service and picks it only
// while it is SERVING. Default false.
func WithHealthCheck(healthCheck bool) ClientOption {
	return func(o *clientOptions) { o.healthCheck = healthCheck }
}

// WithTracer adds tracers, see materpc.Tracer.
func WithTracer(t ...materpc.Tracer) ClientOption {
	return func(o *clientOptions) {
		o.observers.tracers = append(o.observers.tracers, given(o.fault, "WithTracer", t)...)
	}
}

// WithEvents adds event handlers, see materpc.EventHandler.
func WithEvents(h ...materpc.EventHandler) ClientOption {
	return func(o *clientOptions) {
		o.observers.handlers = append(o.observers.handlers, given(o.fault, "WithEvents", h)...)
	}
}

// WithOptions adds grpc-go's own options. Service configs, load-balancing
// policies and idle timeouts among them are without effect. A raw interceptor
// (grpc.WithUnaryInterceptor) stands outside ours, once a call; what it answers
// itself, as a cache or a mock does, is no call to us.
func WithOptions(opts ...stdgrpc.DialOption) ClientOption {
	return func(o *clientOptions) {
		o.dialOptions = append(o.dialOptions, given(o.fault, "WithOptions", opts)...)
	}
}

// WithPrintDiscoveryDebugLog exists for Kratos; discovery is told by events.
func WithPrintDiscoveryDebugLog(bool) ClientOption { return func(*clientOptions) {} }

// WithLogger exists for Kratos, where it is without effect as well.
//
// Deprecated: use [WithEvents].
func WithLogger(log.Logger) ClientOption { return func(*clientOptions) {} }

var errNoDiscovery = errors.New("WithDiscovery or WithHub: is missing; a discovery:/// target needs a registry")
