package grpc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// cannedStream is a stream that a middleware brings instead of a real one.
type cannedStream struct{ stdgrpc.ClientStream }

func (cannedStream) SendMsg(any) error { return nil }
func (cannedStream) CloseSend() error  { return nil }

// TestStreamOfAMiddlewareHoldsNothingUp: a call that no try was made for is
// over when it is returned, or Close would wait for it.
func TestStreamOfAMiddlewareHoldsNothingUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		canned := func(middleware.Handler) middleware.Handler {
			return func(context.Context, any) (any, error) { return cannedStream{}, nil }
		}
		conn, err := grpc.NewClient("direct:///10.0.0.1:9000", grpc.WithInsecure(), grpc.WithStreamMiddleware(canned))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := hellov1.NewGreeterClient(conn).ListHellos(t.Context(), &hellov1.ListHellosRequest{}); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		if err := grpc.Close(t.Context(), conn); err != nil || time.Since(began) > 0 {
			t.Errorf("Close: %v after %v, want at once", err, time.Since(began))
		}
	})
}
