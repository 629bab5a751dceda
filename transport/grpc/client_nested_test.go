package grpc_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/transport/grpc"
)

// A call made inside another one inherits its ctx, and with it a timeout that
// is the outer client's own: to the inner call that is its caller's.
func TestTimeoutOfAnOuterCallIsTheCallers(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		outer, inner time.Duration
		kind         materpc.ErrorKind
	}{
		"the outer's fires, the inner has none": {time.Second, 0, materpc.TimeoutByBusiness},
		"the outer's fires first":               {time.Second, time.Minute, materpc.TimeoutByBusiness},
		"the inner's fires first":               {time.Minute, time.Second, materpc.RPCTimeout},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				n.raw("a:1", func(*rawStream) {})
				n.raw("b:1", answer("b"))
				inner := n.client("direct:///a:1", grpc.WithTimeout(test.inner))
				inner.awaitReady(t, 1)
				var nested error
				outer := n.client("direct:///b:1", grpc.WithTimeout(test.outer), grpc.WithCallInterceptor(
					func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
						_, nested = inner.say(ctx)
						if ctx.Err() != nil && !errors.Is(context.Cause(ctx), materpc.RPCTimeout) {
							t.Errorf("the cause of the outer's ctx is %v", context.Cause(ctx))
						}
						return invoker(ctx, method, req, reply, cc, opts...)
					}))
				_, err := outer.say(t.Context())
				wantErr(t, nested, codes.DeadlineExceeded, test.kind)
				if test.kind == materpc.TimeoutByBusiness {
					wantErr(t, err, codes.DeadlineExceeded, materpc.RPCTimeout)
				} else if err != nil {
					t.Error(err)
				}
				charged := inner.fleet()["a:1"].Results == 1
				if want := test.kind == materpc.RPCTimeout; charged != want {
					t.Errorf("charged %v, want %v", charged, want)
				}
			})
		})
	}
}
