package grpc

import (
	"context"

	"github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc"
)

// clientLayer is a user's layer of the unary client chain.
type clientLayer struct {
	name string
	wrap middleware.Middleware
}

// streamLayer is one of the stream chain.
type streamLayer = clientLayer

// clientChain wraps next in layers, the first outermost. Without any layer it
// is nil, and a call goes straight to its attempts.
func clientChain(layers []clientLayer, next middleware.Handler) middleware.Handler {
	if len(layers) == 0 {
		return nil
	}
	for i := len(layers) - 1; i >= 0; i-- {
		next = layers[i].wrap(next)
	}
	return next
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
				opts, finish := takeOnFinish(opts)
				call.opts, call.finish = opts, append(call.finish, finish...)
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
				opts, finish := takeOnFinish(opts)
				call.method, call.opts, call.finish = method, opts, append(call.finish, finish...)
				reply, err := next(ctx, req)
				return streamOf(reply, err)
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
