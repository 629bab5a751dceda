package grpc_test

import (
	"context"
	"testing"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/transport/grpc"
)

// TestRetryOfAChainedInterceptorIsNoMove: an interceptor given as grpc-go's own
// option is as near to the picker as grpc-go's replay, which it is not.
func TestRetryOfAChainedInterceptorIsNoMove(t *testing.T) {
	t.Parallel()
	for name, fail := range map[string]func(*rawStream){
		"answered": func(s *rawStream) { s.fail(codes.Unauthenticated, "token") },
		"lost":     func(s *rawStream) { s.conn.close() },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := newNet(t)
			n.raw("a:1", fail)
			retry := func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoke stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
				var err error
				for range 4 {
					err = invoke(ctx, method, req, reply, cc, append(opts, stdgrpc.WaitForReady(true))...)
				}
				return err
			}
			c := n.client("direct:///a:1", grpc.WithOptions(stdgrpc.WithChainUnaryInterceptor(retry)))
			ctx, cancel := context.WithTimeout(t.Context(), 5*time.Second)
			defer cancel()
			_, err := c.say(ctx)
			if materpc.KindOf(err) == materpc.NoInstance || c.moves() != 0 || c.inFlight() != 0 {
				t.Errorf("%v: %d moves, %d in flight; want none", err, c.moves(), c.inFlight())
			}
		})
	}
}
