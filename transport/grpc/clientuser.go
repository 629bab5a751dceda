package grpc

import (
	"context"

	"github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc"
)

// userLayer runs what users gave, in their order: Kratos middlewares and call
// interceptors. Without any, a call passes straight through.
func (c *client) userLayer(next clientHandler) clientHandler {
	end := c.endOfUserLayers(next)
	unary, stream := wrapUser(c.unaryUser, end), wrapUser(c.streamUser, end)
	return func(ctx context.Context, call *clientCall, req any) error {
		switch {
		case call.stream != nil && stream != nil:
			return call.stream.throughUser(ctx, stream)
		case call.stream == nil && unary != nil:
			_, err := unary(ctx, req)
			return err
		}
		return next(ctx, call, req)
	}
}

// endOfUserLayers finds the call in the ctx again, which middlewares derive.
func (c *client) endOfUserLayers(next clientHandler) middleware.Handler {
	return func(ctx context.Context, req any) (any, error) {
		call, err := c.callFrom(ctx)
		if err != nil {
			return nil, err
		}
		if err := next(ctx, call, req); err != nil {
			return nil, err
		}
		if call.stream != nil {
			return call.stream, nil
		}
		return call.reply, nil
	}
}

// wrapUser wraps next in layers, the first outermost; nil without any.
func wrapUser(layers []middleware.Middleware, next middleware.Handler) middleware.Handler {
	if len(layers) == 0 {
		return nil
	}
	return middleware.Chain(layers...)(next)
}

// callInterceptor turns an interceptor into a layer.
func callInterceptor(in stdgrpc.UnaryClientInterceptor) middleware.Middleware {
	return func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			call, ok := ctx.Value(callKey{}).(*clientCall)
			if !ok {
				return next(ctx, req) // which reports the lost ctx
			}
			invoke := func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, opts ...stdgrpc.CallOption) error {
				call.method, call.reply, call.cc = method, reply, cc
				call.takeOptions(opts)
				_, err := next(ctx, req)
				return err
			}
			err := in(ctx, call.method, req, call.reply, call.cc, invoke, call.opts...)
			return call.reply, err
		}
	}
}

// callStreamInterceptor is the same for streams.
func callStreamInterceptor(in stdgrpc.StreamClientInterceptor) middleware.Middleware {
	return func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			call, ok := ctx.Value(callKey{}).(*clientCall)
			if !ok {
				return next(ctx, req)
			}
			open := func(ctx context.Context, _ *stdgrpc.StreamDesc, _ *stdgrpc.ClientConn, method string, opts ...stdgrpc.CallOption) (stdgrpc.ClientStream, error) {
				call.method = method
				call.takeOptions(opts)
				return streamOf(next(ctx, req))
			}
			return in(ctx, call.desc, call.cc, call.method, open, call.opts...)
		}
	}
}

// streamOf reads the reply of a stream layer.
func streamOf(reply any, err error) (stdgrpc.ClientStream, error) {
	if err != nil {
		return nil, err
	}
	stream, ok := reply.(stdgrpc.ClientStream)
	if !ok {
		return nil, materpc.Errorf(materpc.Local, "materpc: a stream middleware replied with %T; want the grpc.ClientStream that next returned", reply)
	}
	return stream, nil
}
