package grpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// plainServer is grpc-go's own, answering a constant.
func plainServer(t testing.TB) *bufconn.Listener {
	t.Helper()
	l := bufconn.Listen(1 << 20)
	s := stdgrpc.NewServer()
	hellov1.RegisterGreeterServer(s, &constantReply{reply: &hellov1.SayHelloResponse{Message: "hello"}})
	served := make(chan error, 1)
	go func() { served <- s.Serve(l) }()
	t.Cleanup(func() {
		s.Stop()
		t.Log("ended:", <-served)
	})
	return l
}

type constantReply struct {
	hellov1.UnimplementedGreeterServer
	reply *hellov1.SayHelloResponse
}

func (g *constantReply) SayHello(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	return g.reply, nil
}

// rawClient is grpc-go's own with our transport settings.
func rawClient(t testing.TB, l *bufconn.Listener) hellov1.GreeterClient {
	t.Helper()
	conn, err := stdgrpc.NewClient("passthrough:///bufconn",
		stdgrpc.WithTransportCredentials(insecure.NewCredentials()),
		stdgrpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) }),
		stdgrpc.WithConnectParams(stdgrpc.ConnectParams{Backoff: backoff.DefaultConfig, MinConnectTimeout: 3 * time.Second}),
		stdgrpc.WithMaxHeaderListSize(16<<10),
		stdgrpc.WithDefaultCallOptions(stdgrpc.MaxCallRecvMsgSize(4<<20), stdgrpc.MaxCallSendMsgSize(4<<20), stdgrpc.MaxRetryRPCBufferSize(0)),
		stdgrpc.WithDisableRetry(), stdgrpc.WithDisableServiceConfig(), stdgrpc.WithIdleTimeout(0))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return hellov1.NewGreeterClient(conn)
}

func ourClient(t testing.TB, l *bufconn.Listener, opts ...grpc.ClientOption) *testClient {
	t.Helper()
	opts = append([]grpc.ClientOption{
		grpc.WithInsecure(),
		grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return l.DialContext(ctx) })),
	}, opts...)
	conn, err := grpc.NewClient("passthrough:///bufconn", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	return &testClient{conn: conn, GreeterClient: hellov1.NewGreeterClient(conn)}
}

// TestClientAllocs guards what our client adds to a unary call. The server is
// grpc-go's and in this process, so what reading one more header costs it is
// measured with a raw client that sends the same header, and taken off.
func TestClientAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := plainServer(t)
	raw, ours, timed := rawClient(t, l), ourClient(t, l), ourClient(t, l, grpc.WithTimeout(time.Minute))
	watched := ourClient(t, l, grpc.WithEvents(func(materpc.Event) {}))
	header := metadata.NewOutgoingContext(t.Context(), metadata.Pairs(wire.HeaderKey, wire.Header{Nonce: grpc.Nonce(ours.conn)}.String()))
	request := &hellov1.SayHelloRequest{Name: "ada"}
	measure := func(ctx context.Context, c hellov1.GreeterClient) float64 {
		for range 100 {
			if _, err := c.SayHello(ctx, request); err != nil {
				t.Fatal(err)
			}
		}
		return testing.AllocsPerRun(2000, func() { _, _ = c.SayHello(ctx, request) })
	}
	deadline := func(c hellov1.GreeterClient) float64 {
		return testing.AllocsPerRun(2000, func() {
			ctx, cancel := context.WithTimeout(header, time.Minute)
			defer cancel()
			_, _ = c.SayHello(ctx, request)
		})
	}
	plain, sending := measure(t.Context(), raw), measure(header, raw)
	got, withTimeout, withEvents := measure(t.Context(), ours), measure(t.Context(), timed), measure(t.Context(), watched)
	rawDeadline := deadline(raw)
	t.Logf("allocations a call, both ends: raw %v, raw with one header %v, raw with header and deadline %v; ours %v, with a timeout %v, with events %v",
		plain, sending, rawDeadline, got, withTimeout, withEvents)
	if added := got - plain; added > 2 {
		t.Errorf("our client adds %v allocations, want at most 2", added)
	}
	if added := withTimeout - rawDeadline; added > 2 {
		t.Errorf("with a timeout our client adds %v allocations over raw with a deadline, want at most 2", added)
	}
}

func BenchmarkUnary(b *testing.B) {
	l := plainServer(b)
	request := &hellov1.SayHelloRequest{Name: "ada"}
	for name, c := range map[string]hellov1.GreeterClient{"raw": rawClient(b, l), "ours": ourClient(b, l)} {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, err := c.SayHello(b.Context(), request); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
