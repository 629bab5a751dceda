package grpc

import (
	"context"

	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc"
)

// Stream is a server stream as stream middlewares see it: req of the chain is
// a *Stream, and so is the grpc.ServerStream that the handler gets.
type Stream struct {
	stdgrpc.ServerStream
	call *serverCall
	ctx  context.Context
	next stdgrpc.StreamHandler // what the middlewares call last
}

// Context returns the ctx of the stream, as the last middleware passed it on.
func (s *Stream) Context() context.Context { return s.ctx }

// Method returns "/package.Service/Method".
func (s *Stream) Method() string { return s.call.FullMethod() }

// Shape tells which sides stream.
func (s *Stream) Shape() materpc.Shape { return s.call.Shape() }

// Info returns the call that the stream is.
func (s *Stream) Info() *materpc.RPCInfo { return &s.call.RPCInfo }

// String keeps middlewares that log their request from printing the inside of
// a running stream.
func (s *Stream) String() string { return s.Shape().String() + " " + s.Method() }

// GetStream returns the stream that ctx belongs to, nil outside of one.
func GetStream(ctx context.Context) stdgrpc.ServerStream {
	if c := callOf(ctx); c != nil && c.stream != nil {
		return c.stream
	}
	return nil
}

// streamCall is a call with its stream, in one allocation.
type streamCall struct {
	serverCall
	value Stream
}

// interceptStream is the first of grpc-go's chain, so that the gate stands
// before the user's stream interceptors too.
func (s *Server) interceptStream(srv any, ss stdgrpc.ServerStream, info *stdgrpc.StreamServerInfo, handler stdgrpc.StreamHandler) error {
	m, known := s.methods[info.FullMethod]
	if !known {
		m = s.unknown
	}
	return m.run(srv, ss, info.FullMethod, handler)
}

// serveStream is the handler that grpc-go knows. Streams that came through
// interceptStream are behind the gate already; those that grpc-go runs without
// interceptors (a description whose sides both do not stream) are not.
func (m *serverMethod) serveStream(srv any, ss stdgrpc.ServerStream) error {
	ctx := ss.Context()
	if c := callOf(ctx); c != nil && c.wireStream() == stdgrpc.ServerTransportStreamFromContext(ctx) {
		return m.stream(srv, ss)
	}
	fullMethod := m.fullMethod
	if fullMethod == "" {
		fullMethod, _ = stdgrpc.Method(ctx)
	}
	return m.run(srv, ss, fullMethod, m.stream)
}

func (m *serverMethod) run(srv any, ss stdgrpc.ServerStream, fullMethod string, next stdgrpc.StreamHandler) error {
	growStack(0)
	c := &streamCall{value: Stream{ServerStream: ss, next: next}}
	c.serverCall.method, c.serverCall.srv = m, srv
	c.serverCall.stream, c.value.call = &c.value, &c.serverCall
	c.begin(ss.Context(), fullMethod)
	_, err := m.server.serve(&c.serverCall)
	return err
}

// callStream runs the middlewares once around the stream's whole life.
func (c *serverCall) callStream() error {
	c.stream.ctx = c.ctx
	chain := c.method.chain.Load()
	if chain == nil {
		return c.stream.next(c.srv, c.stream)
	}
	_, err := (*chain)(c.ctx, c.stream)
	return err
}

// callStreamHandler ends every chain of stream middlewares.
func callStreamHandler(ctx context.Context, req any) (any, error) {
	c := callOf(ctx)
	if c == nil || c.stream == nil {
		return nil, errLostContext
	}
	c.stream.ctx = ctx
	if ss, ok := req.(stdgrpc.ServerStream); ok {
		return nil, c.stream.next(c.srv, ss)
	}
	return nil, c.stream.next(c.srv, c.stream)
}
