package grpcshield_test

import (
	"context"
	"fmt"
	"net"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

func ExampleDial() {
	// region:dial
	orders, err := shield.New("orders",
		shield.Timeout{After: 10 * time.Second}, // all attempts together
		shield.On(grpcshield.Transient),
		shield.Retry{Max: 2, Backoff: shield.Constant(time.Millisecond)},
		shield.On(grpcshield.ServerFaults),
		shield.Breaker{},
		shield.Timeout{After: 3 * time.Second}, // each attempt
	)
	if err != nil {
		fmt.Println(err)
		return
	}
	// Around each read and write of streams, once they are open.
	operations, err := shield.New("orders' streams", shield.Timeout{After: time.Minute})
	if err != nil {
		fmt.Println(err)
		return
	}
	options, err := grpcshield.Dial(grpcshield.Client{Unary: orders, Stream: operations})
	if err != nil {
		fmt.Println(err)
		return
	}
	// endregion:dial

	// A server that is not well at first, in the same process.
	listener := bufconn.Listen(1 << 16)
	var calls atomic.Int32
	server := grpc.NewServer(grpc.UnaryInterceptor(func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		if calls.Add(1) == 1 {
			return nil, status.Error(codes.Unavailable, "starting")
		}
		return handler(ctx, req)
	}))
	healthpb.RegisterHealthServer(server, health.NewServer())
	go func() { _ = server.Serve(listener) }()
	defer server.Stop()

	cc, err := grpc.NewClient("passthrough:///orders", append(options,
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	)...)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer cc.Close()
	reply, err := healthpb.NewHealthClient(cc).Check(context.Background(), &healthpb.HealthCheckRequest{})
	fmt.Println(reply.GetStatus(), err, "after", calls.Load(), "calls")
	// Output: SERVING <nil> after 2 calls
}
