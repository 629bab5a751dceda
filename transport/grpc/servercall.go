package grpc

import (
	"context"
	"reflect"
	"sync/atomic"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
)

// serverCall is the record of one inbound call. It is the ctx of the handler,
// Kratos's Transporter and the entry in the in-flight list, in one allocation.
type serverCall struct {
	materpc.Recorder
	transport Transport
	method    *serverMethod
	ctx       context.Context // what the next layer gets
	srv       any
	stream    *Stream // nil for unary calls

	decode      func(any) error                // unary
	interceptor stdgrpc.UnaryServerInterceptor // unary: grpc-go's chain, ours first
	handle      stdgrpc.UnaryHandler           // unary: what the middlewares call last

	links   inflightLinks
	permits permits
	state   atomic.Uint32 // callRunning, callReturned, callAborted
	refused bool
}

const (
	callRunning  uint32 = iota
	callReturned        // the handler has answered
	callAborted         // a shutdown has answered for it
)

type serverCallKey struct{}

// callOf returns the inbound call that ctx belongs to, nil when there is none.
func callOf(ctx context.Context) *serverCall {
	c, _ := ctx.Value(serverCallKey{}).(*serverCall)
	return c
}

// Value implements context.Context. Values of the ctx given to Start are
// visible behind those of the call, as Kratos's servers have it.
func (c *serverCall) Value(key any) any {
	switch key {
	case serverCallKey{}:
		return c
	case serverTransportKey:
		return &c.transport
	}
	if v := c.Recorder.Value(key); v != nil {
		return v
	}
	if base := c.method.server.identity.Load().base; base != nil {
		return base.Value(key)
	}
	return nil
}

// begin writes what never changes.
func (c *serverCall) begin(ctx context.Context, fullMethod string) {
	own := c.method.server.identity.Load()
	c.Begin(ctx, materpc.Call{
		Side: materpc.ServerSide, Shape: c.method.shape, FullMethod: fullMethod, To: own.name,
	}, time.Now())
	c.transport.endpoint, c.transport.operation = own.endpoint, fullMethod
	c.transport.request.incoming = c.Outer()
	c.ctx = c
}

// serveUnary is the handler that grpc-go knows.
func (m *serverMethod) serveUnary(srv any, ctx context.Context, decode func(any) error, interceptor stdgrpc.UnaryServerInterceptor) (any, error) { //nolint:revive // grpc-go's order of arguments
	growStack(0)
	c := &serverCall{method: m, srv: srv, decode: decode, interceptor: interceptor}
	c.begin(ctx, m.fullMethod)
	return m.server.serve(c)
}

// growStack makes the goroutine of a call grow its stack here, where few frames
// have to be copied. It would otherwise do so in the depth of reading the
// message, as it does under raw grpc-go, and every layer of ours would make
// that dearer: 5.5 us a call there, 3.5 us here (bench, unary). It returns a byte
// of its frame, so that the frame exists.
//
//go:noinline
func growStack(i int) byte {
	var room [3 << 10]byte
	return room[i]
}

// callUser is the innermost layer: middlewares, interceptors, handler.
func callUser(c *serverCall) (any, error) {
	if c.stream != nil {
		return nil, c.callStream()
	}
	interceptor := c.interceptor
	if c.method.chain.Load() == nil && c.method.server.alone(interceptor) {
		interceptor = nil // generated code then calls the method directly, which saves two allocations
	}
	return c.method.unary(c.srv, c.ctx, c.decode, interceptor)
}

// alone reports whether grpc-go's chain is nothing but our own interceptor.
func (s *Server) alone(interceptor stdgrpc.UnaryServerInterceptor) bool {
	return interceptor == nil || reflect.ValueOf(interceptor).Pointer() == s.ownInterceptor
}

// interceptUnary runs the middlewares where Kratos has them: inside a raw
// grpc.UnaryInterceptor, outside all chained ones.
func (s *Server) interceptUnary(ctx context.Context, req any, _ *stdgrpc.UnaryServerInfo, handler stdgrpc.UnaryHandler) (any, error) {
	c := callOf(ctx)
	if c == nil {
		return nil, errLostContext
	}
	chain := c.method.chain.Load()
	if chain == nil {
		return handler(ctx, req)
	}
	c.handle = handler
	return (*chain)(ctx, req)
}

// callUnaryHandler ends every chain of unary middlewares.
func callUnaryHandler(ctx context.Context, req any) (any, error) {
	c := callOf(ctx)
	if c == nil || c.handle == nil {
		return nil, errLostContext
	}
	return c.handle(ctx, req)
}

// wireStream is the grpc-go stream under a call.
func (c *serverCall) wireStream() stdgrpc.ServerTransportStream {
	return stdgrpc.ServerTransportStreamFromContext(c.Outer())
}

func (c *serverCall) setTrailer(md metadata.MD) {
	if stream := c.wireStream(); stream != nil && len(md) > 0 {
		_ = stream.SetTrailer(md) // fails only when the call is over
	}
}

// statusWriter is what grpc-go's server stream offers beyond its public
// interface; TestStatusWriter is the contract.
type statusWriter interface{ WriteStatus(*status.Status) error }

// answer ends the call from outside its handler, whose ctx is cancelled with
// it.
func (c *serverCall) answer(s *status.Status) {
	if stream, ok := c.wireStream().(statusWriter); ok {
		_ = stream.WriteStatus(s) // fails only when the connection is gone, and the call with it
	}
}

// abort answers a running call as ServerDraining, unless its handler was
// faster. Where grpc-go does not let us, Stop ends the call with its connection.
func (c *serverCall) abort() {
	if !c.state.CompareAndSwap(callRunning, callAborted) {
		return
	}
	if header, ok := c.Header(); ok {
		c.setTrailer(metadata.Pairs(wire.AbortedKey, header.Nonce))
	}
	c.answer(errAborted.GRPCStatus())
	c.method.server.emit(materpc.Event{
		Type: materpc.HandlerAborted, Info: &c.RPCInfo, Kind: materpc.ServerDraining, Err: errAborted, Detail: c.FullMethod(),
	})
}

func unimplemented(fullMethod string) error {
	return status.Errorf(codes.Unimplemented, "unknown method %s", fullMethod)
}
