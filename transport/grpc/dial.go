package grpc

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/resolver"

	"github.com/materpc/materpc/selector/p2c"
)

// Default numbers of a client; doc.go tells them.
const (
	defaultSubset     = 25
	defaultDrainGrace = 30 * time.Second
	defaultCloseWait  = 5 * time.Second
	connectTimeout    = 3 * time.Second
	maxMessage        = 4 << 20
	maxHeaderList     = 16 << 10
)

func defaultClientOptions() clientOptions {
	return clientOptions{
		subset: defaultSubset, drainGrace: defaultDrainGrace, closeWait: defaultCloseWait,
		connectWait: connectTimeout, strategy: p2c.Strategy(),
	}
}

// dial makes the connection, or reports all faults.
func (o *clientOptions) dial() (*stdgrpc.ClientConn, error) {
	if o.credentials == nil && o.secure {
		o.credentials = credentials.NewTLS(&tls.Config{MinVersion: tls.VersionTLS12})
	}
	t, err := o.check()
	if err != nil {
		return nil, err
	}
	c := o.client(t)
	conn, err := stdgrpc.NewClient(t.text, o.options(c)...)
	if err != nil {
		return nil, fmt.Errorf("materpc: client for %q: %w", o.endpoint, err)
	}
	// Interceptors among grpc-go's own options stand outside ours and may answer
	// both probes themselves, as a cache or a mock does. That proves nothing; a
	// call that reaches the balancer past us is told as Ungoverned.
	if _, err := clientOf(conn); err != nil && len(o.dialOptions) == 0 {
		return nil, errors.Join(err, conn.Close())
	}
	conn.Connect()
	return conn, nil
}

// check reports all faults of target, options and credentials.
func (o *clientOptions) check() (target, error) {
	t, err := parseTarget(o.endpoint)
	if err != nil {
		o.faults = append([]error{err}, o.faults...)
	}
	if t.scheme == schemeDiscovery && o.discovery == nil && o.hub == nil {
		o.faults = append(o.faults, errNoDiscovery)
	}
	if o.credentials == nil && !brings(o.dialOptions) {
		o.faults = append(o.faults, errNoCredentials)
	}
	switch {
	case err != nil: // names the target itself
		return t, fmt.Errorf("materpc: client: %w", errors.Join(o.faults...))
	case len(o.faults) > 0:
		return t, fmt.Errorf("materpc: client for %q: %w", o.endpoint, errors.Join(o.faults...))
	}
	return t, nil
}

var errNoCredentials = errors.New("there are no credentials; want WithInsecure, WithTLSConfig or WithCredentials")

// brings reports whether grpc-go's own options bring credentials. They cannot be
// read, only tried: a connection that lacks nothing else without them lacks them.
func brings(options []stdgrpc.DialOption) bool {
	lacks := func(options ...stdgrpc.DialOption) bool {
		conn, err := stdgrpc.NewClient("passthrough:///", options...)
		if err == nil {
			_ = conn.Close() // it has not connected
		}
		return err != nil
	}
	insecure := stdgrpc.WithTransportCredentials(insecure.NewCredentials())
	return !lacks(options...) || lacks(append([]stdgrpc.DialOption{insecure}, options...)...)
}

func (o *clientOptions) client(t target) *client {
	c := &client{
		target: t, name: o.name, destination: o.destination, scheme: "grpc", nonce: newNonce(), epoch: time.Now(),
		observers: o.observers, filters: o.filters, hashKey: o.hashKey, strategy: o.strategy, timeout: o.timeout,
		subset: o.subset, drainGrace: o.drainGrace, closeWait: o.closeWait, healthCheck: o.healthCheck,
		unaryUser: o.unaryUser, streamUser: o.streamUser, textsHold: textsHold, idle: make(chan struct{}),
	}
	c.layered = len(o.unaryUser)+len(o.streamUser)+len(o.attempts)+len(o.streamTries)+len(o.observers.tracers)+
		len(o.dialOptions) > 0
	if c.destination == "" {
		c.destination = t.destination()
	}
	if o.credentials != nil && o.credentials.Info().SecurityProtocol != "insecure" {
		c.scheme = "grpcs"
	}
	c.header = newClientHeader(c.name, c.nonce)
	c.compile()
	return c
}

// options orders grpc-go's options: our defaults, the user's, and last what
// must hold.
func (o *clientOptions) options(c *client) []stdgrpc.DialOption {
	opts := []stdgrpc.DialOption{
		stdgrpc.WithChainUnaryInterceptor(append([]stdgrpc.UnaryClientInterceptor{c.unary}, o.attempts...)...),
		stdgrpc.WithChainStreamInterceptor(append([]stdgrpc.StreamClientInterceptor{c.newStream}, o.streamTries...)...),
		stdgrpc.WithConnectParams(stdgrpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: 10 * time.Second},
			MinConnectTimeout: o.connectWait,
		}),
		stdgrpc.WithMaxHeaderListSize(maxHeaderList),
		stdgrpc.WithDefaultCallOptions(
			stdgrpc.MaxCallRecvMsgSize(maxMessage), stdgrpc.MaxCallSendMsgSize(maxMessage),
			// Unary and server streaming: every re-send is ours to make.
			stdgrpc.MaxRetryRPCBufferSize(0),
		),
	}
	if !c.target.proxied() {
		opts = append(opts, stdgrpc.WithNoProxy())
	}
	if o.credentials != nil {
		opts = append(opts, stdgrpc.WithTransportCredentials(&socketCredentials{o.credentials, c}))
		// Only an authority wins over the name that each address brings.
		if name := o.credentials.Info().ServerName; name != "" { //nolint:staticcheck // it has no other reader
			opts = append(opts, stdgrpc.WithAuthority(name))
		}
	}
	opts = append(opts, o.dialOptions...)
	config := serviceConfig
	if o.healthCheck {
		config = healthServiceConfig
	}
	return append(opts,
		stdgrpc.WithResolvers(o.resolver(c)),
		stdgrpc.WithDefaultServiceConfig(config),
		stdgrpc.WithDisableServiceConfig(),
		stdgrpc.WithDisableRetry(),
		stdgrpc.WithIdleTimeout(0), // idling would end the balancer and its statistics
	)
}

func (o *clientOptions) resolver(c *client) resolver.Builder {
	b := &resolverBuilder{client: c}
	switch c.target.scheme {
	case schemeDiscovery:
		b.discovery, b.hub = o.discovery, o.hub
	case schemeUnix, schemeAbstract:
		b.inner = resolver.Get(c.target.scheme)
	default:
		b.discovery = c.target.discovery(c.scheme)
	}
	return b
}

// socketCredentials hand the connection of each instance to its owner, which
// can then end it; see sockets.
type socketCredentials struct {
	credentials.TransportCredentials
	client *client
}

// ClientHandshake implements credentials.TransportCredentials.
func (c *socketCredentials) ClientHandshake(ctx context.Context, authority string, raw net.Conn) (net.Conn, credentials.AuthInfo, error) {
	if in, ok := credentials.ClientHandshakeInfoFromContext(ctx).Attributes.Value(instanceKey{}).(*instance); ok {
		raw = in.sockets.add(raw)
	}
	return c.TransportCredentials.ClientHandshake(ctx, authority, raw)
}

// Clone implements credentials.TransportCredentials.
func (c *socketCredentials) Clone() credentials.TransportCredentials {
	return &socketCredentials{c.TransportCredentials.Clone(), c.client}
}
