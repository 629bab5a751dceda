package grpc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// A raw interceptor stands outside ours and need not call on: a cache, a mock,
// a guard. That is no fault of construction.
func TestRawInterceptorThatAnswersItself(t *testing.T) {
	t.Parallel()
	type interceptor = stdgrpc.UnaryClientInterceptor
	for name, raw := range map[string]interceptor{
		"answers": func(context.Context, string, any, any, *stdgrpc.ClientConn, stdgrpc.UnaryInvoker, ...stdgrpc.CallOption) error {
			return nil
		},
		"fails": func(context.Context, string, any, any, *stdgrpc.ClientConn, stdgrpc.UnaryInvoker, ...stdgrpc.CallOption) error {
			return context.Canceled
		},
		"expects its own messages": func(_ context.Context, _ string, _, reply any, _ *stdgrpc.ClientConn, _ stdgrpc.UnaryInvoker, _ ...stdgrpc.CallOption) error {
			reply.(*hellov1.SayHelloResponse).Server = "mock" //nolint:forcetypeassert,errcheck // as careless as mocks are
			return nil
		},
		"drops the options": func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, _ ...stdgrpc.CallOption) error {
			return invoker(ctx, method, req, reply, cc)
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				opener(n, "a:1")
				conn, err := grpc.NewClient("direct:///a:1", grpc.WithInsecure(),
					grpc.WithOptions(stdgrpc.WithContextDialer(n.dialContext), stdgrpc.WithUnaryInterceptor(raw)))
				if err != nil {
					t.Fatal(err)
				}
				stream, err := hellov1.NewGreeterClient(conn).Chat(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if _, err := stream.Header(); err != nil {
					t.Fatal(err)
				}
				began := time.Now() // Close still finds the client, and its running calls
				if err := grpc.Close(t.Context(), conn); err != nil || time.Since(began) != 5*time.Second {
					t.Errorf("Close: %v after %v, want none after the close wait", err, time.Since(began))
				}
				if _, err := stream.Recv(); err == nil {
					t.Error("the stream goes on")
				}
			})
		})
	}
}

// With both shapes answered by others nothing of a call reaches us, and Close
// has nothing to wait for.
func TestRawInterceptorsThatAnswerAll(t *testing.T) {
	t.Parallel()
	conn, err := grpc.NewClient("direct:///a:1", grpc.WithInsecure(), grpc.WithOptions(
		stdgrpc.WithUnaryInterceptor(func(context.Context, string, any, any, *stdgrpc.ClientConn, stdgrpc.UnaryInvoker, ...stdgrpc.CallOption) error {
			return nil
		}),
		stdgrpc.WithStreamInterceptor(func(context.Context, *stdgrpc.StreamDesc, *stdgrpc.ClientConn, string, stdgrpc.Streamer, ...stdgrpc.CallOption) (stdgrpc.ClientStream, error) {
			return nil, context.Canceled
		})))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := hellov1.NewGreeterClient(conn).SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
		t.Error(err)
	}
	if err := conn.Close(); err != nil {
		t.Error(err)
	}
}
