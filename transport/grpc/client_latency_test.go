package grpc_test

import (
	"context"
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/transport/grpc"
)

// TestLatencyIsTheInstances: what users' code takes before the pick is not its.
func TestLatencyIsTheInstances(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]grpc.ClientOption{
		"middleware": grpc.WithMiddleware(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, req any) (any, error) {
				time.Sleep(2 * time.Second)
				return next(ctx, req)
			}
		}),
		"try interceptor": grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoke stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
			time.Sleep(2 * time.Second)
			return invoke(ctx, method, req, reply, cc, opts...)
		}),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				n.raw("a:1", answer("a"))
				target := "direct:///a:1"
				var node *selector.Node
				c := n.client(target, opt, grpc.WithStrategy(inOrder{onPick: func(n *selector.Node) { node = n }}))
				c.awaitReady(t, 1)
				if _, err := c.say(t.Context()); err != nil {
					t.Fatal(err)
				}
				if d := time.Duration(node.Stats().Latency); d > time.Second {
					t.Errorf("latency %v is charged to the instance; want none of the 2 s before the pick", d)
				}
			})
		})
	}
}

// TestLatencyIsWithoutTheWait: a call that waited for an instance that could not
// be reached does not charge it with that. It runs over TCP in real time, for a
// dialer of the test's own would be code of users.
func TestLatencyIsWithoutTheWait(t *testing.T) {
	t.Parallel()
	listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	address := listener.Addr().String()
	_ = listener.Close()
	var node *selector.Node
	c := dialClient(t, "direct:///"+address, grpc.WithStrategy(inOrder{onPick: func(n *selector.Node) { node = n }}))
	await(t, "the instance to fail", func() bool { return c.fleet()[address].Failing })
	const wait = 300 * time.Millisecond
	var starter sync.WaitGroup
	starter.Go(func() {
		<-time.After(wait)
		if listener, err := new(net.ListenConfig).Listen(t.Context(), "tcp", address); err == nil {
			startRaw(t, listener, answer("a"))
		}
	})
	_, err = c.say(t.Context(), stdgrpc.WaitForReady(true))
	starter.Wait()
	if err != nil {
		t.Fatal(err)
	}
	if d := time.Duration(node.Stats().Latency); d > wait*2/3 {
		t.Errorf("latency %v is charged to the instance; want none of the wait before the pick", d)
	}
}
