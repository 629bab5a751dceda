package grpc_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	"golang.org/x/net/http2"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

func TestFinishHookReadsTrailerOfRefusedStream(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	n.raw("a:1", func(s *rawStream) { s.rst(http2.ErrCodeRefusedStream) })
	hooked := make(chan metadata.MD, 1)
	layer := func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			reply, err := next(ctx, req)
			if err != nil {
				return nil, err
			}
			info, _ := materpc.FromContext(ctx)
			stream, ok := reply.(stdgrpc.ClientStream)
			if !ok {
				return nil, errors.New("the reply is no stream")
			}
			info.OnFinish(func(error) { hooked <- stream.Trailer() })
			return reply, nil
		}
	}
	c := n.client("direct:///a:1", grpc.WithStreamMiddleware(layer))
	c.awaitReady(t, 1)
	stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{})
	if err != nil {
		t.Fatal(err)
	}
	done := make(chan error, 1)
	go func() { _, err := stream.Recv(); done <- err }()
	select {
	case err := <-done:
		wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
	case <-time.After(3 * time.Second):
		t.Fatal("Recv hangs: the finish hook waits for a lock that its caller holds")
	}
	<-hooked
}

func TestPanicOfATryInterceptorLeaksNoPick(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	n.raw("a:1", answer("a"))
	boom := func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoke stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
		_ = invoke(ctx, method, req, reply, cc, opts...)
		panic("boom")
	}
	c := n.client("direct:///a:1", grpc.WithUnaryInterceptor(boom))
	func() {
		defer func() { _ = recover() }()
		_, _ = c.say(t.Context())
	}()
	if got := c.inFlight(); got != 0 {
		t.Errorf("%d in flight after the panic, want 0", got)
	}
}

func TestStreamLayerThatFailsAfterNext(t *testing.T) {
	t.Parallel()
	for name, panics := range map[string]bool{"error": false, "panic": true} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				hung := &rawServer{listener: n.listen("a:1"), script: func(*rawStream) {}, early: true}
				hung.start(t)
				own := materpc.Errorf(materpc.ACL, "no")
				layer := func(next middleware.Handler) middleware.Handler {
					return func(ctx context.Context, req any) (any, error) {
						if _, err := next(ctx, req); err != nil {
							return nil, err
						}
						if panics {
							panic("boom")
						}
						return nil, own
					}
				}
				c := n.client("direct:///a:1", grpc.WithStreamMiddleware(layer))
				c.awaitReady(t, 1)
				func() {
					defer func() { _ = recover() }()
					_, _ = c.Chat(context.WithoutCancel(t.Context()))
				}()
				synctest.Wait()
				if got := c.inFlight(); got != 0 {
					t.Errorf("%d streams open, want 0", got)
				}
				got := c.events.of(materpc.RPCFinish)
				want := materpc.ACL
				if panics {
					want = materpc.Panic
				}
				if len(got) != 1 || got[0].Kind != want {
					t.Errorf("finished with %v, want %v once", got, want)
				}
			})
		})
	}
}

func TestSecondCloseDoesNotWaitInVain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		release := make(chan struct{})
		n.raw("a:1", func(s *rawStream) { <-release; s.reply(&hellov1.SayHelloResponse{}) })
		c := n.client("direct:///a:1")
		var calls, closes sync.WaitGroup
		calls.Go(func() { _, _ = c.say(t.Context()) })
		synctest.Wait()
		began := time.Now()
		for range 3 {
			closes.Go(func() { _ = grpc.Close(t.Context(), c.conn) })
		}
		synctest.Wait()
		close(release)
		closes.Wait()
		calls.Wait()
		if d := time.Since(began); d > time.Second {
			t.Errorf("Close took %v after the last call had ended", d)
		}
	})
}

func TestRetryOfATryInterceptorIsNoMove(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	a := n.raw("a:1", func(s *rawStream) { s.fail(codes.Unauthenticated, "token") })
	retry := func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoke stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
		var err error
		for range 8 {
			err = invoke(ctx, method, req, reply, cc, opts...)
		}
		return err
	}
	c := n.client("direct:///a:1", grpc.WithUnaryInterceptor(retry))
	_, err := c.say(t.Context())
	wantErr(t, err, codes.Unauthenticated, materpc.RemoteOrNetwork)
	if a.requests.Load() != 8 || c.moves() != 0 || c.inFlight() != 0 {
		t.Errorf("%d requests, %d moves, %d in flight; want 8, 0, 0", a.requests.Load(), c.moves(), c.inFlight())
	}
}

func TestHeaderBesideRecvOnARefusedStream(t *testing.T) {
	t.Parallel()
	for range 30 {
		c, _, _ := streamNet(t, false, func(s *rawStream) { s.rst(http2.ErrCodeRefusedStream) }, greet("b", 2))
		stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{})
		if err != nil {
			t.Fatal(err)
		}
		var asker sync.WaitGroup
		asker.Go(func() {
			if md, err := stream.Header(); err != nil || len(md.Get("who")) != 1 {
				t.Errorf("header %v, %v", md, err)
			}
		})
		if got, err := readAll(stream); got != 2 || !errors.Is(err, io.EOF) {
			t.Errorf("%d messages, %v; want 2, EOF", got, err)
		}
		asker.Wait()
	}
}

func TestHeaderOfAStreamThatEndedWell(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := &rawServer{listener: n.listen("a:1"), early: true, script: func(s *rawStream) { s.fail(codes.OK, "") }}
		a.start(t)
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		ctx, cancel := context.WithCancel(t.Context())
		stream, err := c.Chat(ctx)
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&hellov1.ChatRequest{})
		if md, err := stream.Header(); md != nil || err != nil {
			t.Fatalf("header %v, %v", md, err)
		}
		cancel()
		synctest.Wait()
		if got := len(c.finished()); got != 1 || c.inFlight() != 0 {
			t.Errorf("finished %d times, %d in flight; want 1, 0", got, c.inFlight())
		}
	})
}

// slowHeader holds a Header up after grpc-go has answered it.
type slowHeader struct {
	stdgrpc.ClientStream
	hold chan struct{}
}

func (s slowHeader) Header() (metadata.MD, error) {
	<-s.hold
	return nil, nil
}

func TestHeaderBesideCloseAndRecv(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(s *rawStream) { s.reply(&hellov1.CollectNamesResponse{}) })
		hold := make(chan struct{})
		wrap := func(ctx context.Context, desc *stdgrpc.StreamDesc, cc *stdgrpc.ClientConn, method string, streamer stdgrpc.Streamer, opts ...stdgrpc.CallOption) (stdgrpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, opts...)
			return slowHeader{stream, hold}, err
		}
		c := n.client("direct:///a:1", grpc.WithStreamInterceptor(wrap))
		c.awaitReady(t, 1)
		stream, err := c.CollectNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var asker sync.WaitGroup
		asker.Go(func() { _, _ = stream.Header() })
		synctest.Wait()
		if _, err := stream.CloseAndRecv(); err != nil {
			t.Fatal(err)
		}
		if got := len(c.finished()); got != 1 || c.inFlight() != 0 {
			t.Errorf("finished %d times, %d in flight; want 1, 0", got, c.inFlight())
		}
		close(hold)
		asker.Wait()
	})
}

func TestRawInterceptorSeesProtoMessages(t *testing.T) {
	t.Parallel()
	raw := func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoke stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
		for _, m := range []any{req, reply} {
			if _, ok := m.(proto.Message); !ok {
				t.Errorf("%s carries a %T", method, m)
			}
		}
		return invoke(ctx, method, req, reply, cc, opts...)
	}
	n := newNet(t)
	n.raw("a:1", answer("a"))
	c := n.client("direct:///a:1", grpc.WithOptions(stdgrpc.WithUnaryInterceptor(raw)))
	if _, err := c.say(t.Context()); err != nil {
		t.Error(err)
	}
}

func TestNilOptions(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]grpc.ClientOption{
		"middleware": grpc.WithMiddleware(nil), "stream middleware": grpc.WithStreamMiddleware(nil),
		"unary": grpc.WithUnaryInterceptor(nil), "stream": grpc.WithStreamInterceptor(nil),
		"call": grpc.WithCallInterceptor(nil), "stream call": grpc.WithStreamCallInterceptor(nil),
		"tracer": grpc.WithTracer(nil), "events": grpc.WithEvents(nil), "filter": grpc.WithNodeFilter(nil),
		"options": grpc.WithOptions(nil),
	} {
		conn, err := grpc.NewClient("direct:///a:1", grpc.WithInsecure(), opt)
		if err == nil {
			t.Errorf("%s: no fault", name)
			_ = conn.Close()
		}
	}
	conn, err := grpc.NewClient("direct:///a:1", grpc.WithInsecure(), nil)
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
}

func TestCallOfAClosingClientIsAWholeCall(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	n.raw("a:1", answer("a"))
	c := n.client("direct:///a:1")
	if err := grpc.Close(t.Context(), c.conn); err != nil {
		t.Fatal(err)
	}
	_, err := c.say(t.Context())
	wantErr(t, err, codes.Canceled, materpc.Local)
	_, err = c.Chat(t.Context())
	wantErr(t, err, codes.Canceled, materpc.Local)
	if s, f := len(c.events.of(materpc.RPCStart)), len(c.finished()); s != 2 || f != 2 {
		t.Errorf("%d starts, %d finishes; want 2, 2", s, f)
	}
}
