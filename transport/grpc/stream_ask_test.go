package grpc_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// committedStream is a bidi stream that has sent a message.
func committedStream(t *testing.T, ctx context.Context, c *testClient) hellov1.Greeter_ChatClient {
	t.Helper()
	stream, err := c.Chat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&hellov1.ChatRequest{Name: "ada"}); err != nil {
		t.Fatal(err)
	}
	return stream
}

// Header beside Recv on a committed stream that ends Trailers-Only with an
// error: one end, the real one.
func TestHeaderBesideRecvOfACommittedStreamThatFails(t *testing.T) {
	t.Parallel()
	for range 50 {
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			fail := make(chan struct{})
			a := &rawServer{listener: n.listen("a:1"), early: true, script: func(s *rawStream) {
				<-fail
				s.fail(codes.NotFound, "no such chat")
			}}
			a.start(t)
			c := n.client("direct:///a:1")
			c.awaitReady(t, 1)
			stream := committedStream(t, t.Context(), c)
			var both sync.WaitGroup
			for range 3 {
				both.Go(func() {
					if md, err := stream.Header(); md != nil || err != nil {
						t.Errorf("header %v, %v", md, err)
					}
				})
			}
			both.Go(func() {
				for range 2 {
					_, err := stream.Recv()
					wantErr(t, err, codes.NotFound, materpc.RemoteOrNetwork)
				}
			})
			close(fail)
			both.Wait()
			wantStreamEnd(t, c, 0)
			if end := c.events.of(materpc.RPCFinish)[0]; end.Kind != materpc.RemoteOrNetwork {
				t.Errorf("finished as %v", end.Kind)
			}
		})
	}
}

// firstHeaderLate holds the first Header up; the others say what grpc-go says
// of a stream that another Header is just ending.
type firstHeaderLate struct {
	stdgrpc.ClientStream
	asked *atomic.Int32
	hold  <-chan struct{}
}

func (s firstHeaderLate) Header() (metadata.MD, error) {
	if s.asked.Add(1) > 1 {
		return nil, nil
	}
	<-s.hold
	return s.ClientStream.Header()
}

// A stream that was never sent looks well ended to grpc-go's Header; another
// Header that returned before does not make it so.
func TestTwoHeadersOfACommittedStreamThatWasNeverSent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		hold := make(chan struct{})
		c, cut := orphanNet(t, grpc.WithStreamInterceptor(func(ctx context.Context, desc *stdgrpc.StreamDesc, cc *stdgrpc.ClientConn, method string, streamer stdgrpc.Streamer, opts ...stdgrpc.CallOption) (stdgrpc.ClientStream, error) {
			stream, err := streamer(ctx, desc, cc, method, opts...)
			return firstHeaderLate{stream, new(atomic.Int32), hold}, err
		}), grpc.WithStreamInterceptor(withoutReplay))
		stream := committedStream(t, t.Context(), c)
		var first sync.WaitGroup
		first.Go(func() { _, _ = stream.Header() })
		synctest.Wait()
		_, _ = stream.Header() // has come and gone
		cut()
		close(hold)
		first.Wait()
		if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("Recv: %v, want how the stream ended", err)
		}
	})
}

// withoutReplay keeps grpc-go from sending a stream again by itself.
func withoutReplay(ctx context.Context, desc *stdgrpc.StreamDesc, cc *stdgrpc.ClientConn, method string, streamer stdgrpc.Streamer, opts ...stdgrpc.CallOption) (stdgrpc.ClientStream, error) {
	return streamer(ctx, desc, cc, method, append(opts, stdgrpc.MaxRetryRPCBufferSize(0))...)
}

// Nobody reads such a stream before its ctx ends: that is no success either.
func TestHeaderOfAStreamThatWasNeverSentAndIsNotRead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cut := orphanNet(t, grpc.WithStreamInterceptor(withoutReplay))
		ctx, cancel := context.WithCancel(t.Context())
		stream := committedStream(t, ctx, c)
		cut()
		if md, err := stream.Header(); md != nil || err != nil {
			t.Fatalf("header %v, %v", md, err)
		}
		cancel()
		synctest.Wait()
		if _, err := stream.Recv(); err == nil || errors.Is(err, io.EOF) {
			t.Errorf("Recv: %v, want an error", err)
		}
		for _, info := range c.finished() {
			if err, _ := info.Result(); info.FullMethod() == hellov1.Greeter_Chat_FullMethodName && err == nil {
				t.Error("the call finished well")
			}
		}
	})
}
