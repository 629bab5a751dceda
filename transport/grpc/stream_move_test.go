package grpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	"golang.org/x/net/http2"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// streamNet is two instances for streams, a asked first. early scripts run
// when the request's headers are here.
func streamNet(t *testing.T, early bool, a, b func(*rawStream), opts ...grpc.ClientOption) (*testClient, *rawServer, *rawServer) {
	t.Helper()
	n := newNet(t)
	first := &rawServer{listener: n.listen("a:1"), script: a, early: early}
	second := &rawServer{listener: n.listen("b:1"), script: b, early: early}
	first.start(t)
	second.start(t)
	c := n.client("direct:///a:1,b:1", append([]grpc.ClientOption{ordered}, opts...)...)
	c.awaitReady(t, 2)
	return c, first, second
}

// greet sends n messages, with a header, and ends well.
func greet(id string, n int) func(*rawStream) {
	return func(s *rawStream) {
		s.headers("who", id)
		for range n {
			s.message(&hellov1.ListHellosResponse{Server: id})
		}
		s.trailers(codes.OK, "", "who", id)
	}
}

// drain reads a stream to its end.
func readAll[T any](stream interface{ Recv() (*T, error) }) (n int, err error) {
	for {
		if _, err = stream.Recv(); err != nil {
			return n, err
		}
		n++
	}
}

func refusals() map[string]func(*rawStream) {
	return map[string]func(*rawStream){
		"proof":          refusing(wire.Draining, ""),
		"REFUSED_STREAM": func(s *rawStream) { s.rst(http2.ErrCodeRefusedStream) },
		"GOAWAY":         func(s *rawStream) { s.conn.goAway(0); s.conn.close() },
	}
}

// wantStreamEnd checks what must hold after a stream has ended.
func wantStreamEnd(t *testing.T, c *testClient, moves int) {
	t.Helper()
	synctest.Wait()
	if got := c.finished(); len(got) != 1 || got[0].Moves() != moves || got[0].Attempts() != 1 {
		t.Errorf("finished %d times, %d moves; want once, %d", len(got), c.moves(), moves)
	}
	if got := len(c.events.of(materpc.Move)); got != moves {
		t.Errorf("%d move events, want %d", got, moves)
	}
	if got := c.inFlight(); got != 0 {
		t.Errorf("%d in flight, want 0", got)
	}
}

func TestServerStreamMovesUntilItsFirstHeader(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, a, b := streamNet(t, false, refusal, greet("b", 3))
				stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
				if err != nil {
					t.Fatal(err)
				}
				if got, err := readAll(stream); got != 3 || err != io.EOF { //nolint:errorlint // bare, on purpose
					t.Fatalf("%d messages, %v; want 3 and a bare io.EOF", got, err)
				}
				if got := stream.Trailer().Get("who"); len(got) != 1 || got[0] != "b" {
					t.Errorf("trailer %v", stream.Trailer())
				}
				if a.requests.Load() != 1 || b.requests.Load() != 1 {
					t.Errorf("a saw %d, b %d", a.requests.Load(), b.requests.Load())
				}
				wantStreamEnd(t, c, 1)
			})
		})
	}
}

// Trap 9: Header before Recv on a refused try is the next try's.
func TestHeaderBeforeRecvOnARefusedTry(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _, _ := streamNet(t, false, refusal, greet("b", 1))
				stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
				if err != nil {
					t.Fatal(err)
				}
				header, err := stream.Header()
				if got := header.Get("who"); err != nil || len(got) != 1 || got[0] != "b" {
					t.Fatalf("header %v, %v", header, err)
				}
				if got, err := readAll(stream); got != 1 || !errors.Is(err, io.EOF) {
					t.Fatalf("%d messages, %v", got, err)
				}
				wantStreamEnd(t, c, 1)
			})
		})
	}
}

func TestHeaderOfAStreamThatAllRefuse(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := streamNet(t, false, refusing(wire.Draining, ""), refusing(wire.Draining, ""))
		stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		if header, err := stream.Header(); header != nil || err != nil {
			t.Errorf("header %v, %v; want none, as grpc-go", header, err)
		}
		for range 2 {
			_, err = stream.Recv()
			wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
		}
		wantStreamEnd(t, c, 1)
	})
}

// A stream whose headers were never written looks well ended to grpc-go's own
// Header. It was not: it moves, unless grpc-go calls it lost.
func TestHeaderOfAStreamThatWasNeverWritten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := &rawServer{listener: n.listenSmall("a:1", 1024), script: func(*rawStream) {}, deaf: 1}
		a.start(t)
		n.raw("b:1", greet("b", 1))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		stuck := make(chan error, 1)
		go func() {
			_, err := c.SayHello(t.Context(), &hellov1.SayHelloRequest{Name: strings.Repeat("x", 20_000)})
			stuck <- err
		}()
		synctest.Wait() // the writer of the connection is stuck from here on
		stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
		if err != nil {
			t.Fatal(err)
		}
		go func() {
			time.Sleep(time.Second)
			a.live()[0].close()
		}()
		// Which of the two ends of the stream grpc-go's own goroutines meet first
		// is open: never written, or lost. It never ends well with nothing read.
		header, err := stream.Header()
		got, end := readAll(stream)
		switch who := header.Get("who"); {
		case err == nil && len(who) == 1 && who[0] == "b" && got == 1 && errors.Is(end, io.EOF):
		case err == nil && header == nil && got == 0 && materpc.KindOf(end) == materpc.ConnectionLost:
		default:
			t.Errorf("header %v, %v, then %d messages and %v", header, err, got, end)
		}
		if a.requests.Load() != 1 {
			t.Errorf("a saw %d requests", a.requests.Load())
		}
		if err := <-stuck; materpc.KindOf(err) != materpc.ConnectionLost {
			t.Errorf("the call that was sent: %v, kind %v", err, materpc.KindOf(err))
		}
	})
}

// After a header or a message nothing moves.
func TestServerStreamStaysOnceItHasBegun(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		script func(*rawStream)
		kind   materpc.ErrorKind
	}{
		"header, then proof": {func(s *rawStream) {
			s.headers()
			s.trailers(codes.Unavailable, "draining", wire.RefusedKey, wire.Proof{Nonce: s.nonce(), Reason: wire.Draining}.Refusal())
		}, materpc.ServerRefused},
		"message, then close": {func(s *rawStream) {
			s.headers()
			s.message(&hellov1.ListHellosResponse{})
			s.conn.close()
		}, materpc.ConnectionLost},
		"message, then abort": {func(s *rawStream) {
			s.headers()
			s.message(&hellov1.ListHellosResponse{})
			s.trailers(codes.Unavailable, "shutdown", wire.AbortedKey, s.nonce())
		}, materpc.ServerDraining},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _, b := streamNet(t, false, test.script, greet("b", 1))
				stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
				if err != nil {
					t.Fatal(err)
				}
				if header, err := stream.Header(); header == nil || err != nil {
					t.Fatalf("header %v, %v", header, err)
				}
				_, err = readAll(stream)
				wantErr(t, err, codes.Unavailable, test.kind)
				if b.requests.Load() != 0 {
					t.Error("moved")
				}
				wantStreamEnd(t, c, 0)
			})
		})
	}
}

func TestClientStreamMovesWhileNothingWasAccepted(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals() {
		t.Run(name+", nothing sent", func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _, b := streamNet(t, true, refusal, func(s *rawStream) { s.reply(&hellov1.CollectNamesResponse{Server: "b"}) })
				stream, err := c.CollectNames(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				reply, err := stream.CloseAndRecv()
				if err != nil || reply.GetServer() != "b" || b.requests.Load() != 1 {
					t.Fatalf("%v, %v", reply, err)
				}
				wantStreamEnd(t, c, 1)
			})
		})
	}
	t.Run("sent, proof", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _, b := streamNet(t, false, refusing(wire.Draining, ""), answer("b"))
			stream, err := c.CollectNames(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&hellov1.CollectNamesRequest{Name: "ada"}); err != nil {
				t.Fatal(err)
			}
			_, err = stream.CloseAndRecv()
			wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
			if b.requests.Load() != 0 {
				t.Error("moved")
			}
			wantStreamEnd(t, c, 0)
		})
	})
	// grpc-go's own replay of unprocessed streams stays on; it goes elsewhere
	// and is counted.
	t.Run("sent, REFUSED_STREAM", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, a, _ := streamNet(t, false, refusals()["REFUSED_STREAM"], func(s *rawStream) { s.reply(&hellov1.CollectNamesResponse{Server: "b"}) })
			stream, err := c.CollectNames(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			if err := stream.Send(&hellov1.CollectNamesRequest{Name: "ada"}); err != nil {
				t.Fatal(err)
			}
			reply, err := stream.CloseAndRecv()
			if err != nil || reply.GetServer() != "b" || a.requests.Load() != 1 {
				t.Fatalf("%v, %v; a saw %d", reply, err, a.requests.Load())
			}
			wantStreamEnd(t, c, 1)
		})
	})
}

func TestBidiMovesWhileNothingWasAccepted(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _, _ := streamNet(t, true, refusal, greet("b", 1))
				stream, err := c.Chat(t.Context())
				if err != nil {
					t.Fatal(err)
				}
				if reply, err := stream.Recv(); err != nil || reply.GetServer() != "b" {
					t.Fatalf("%v, %v", reply, err)
				}
				if _, err := stream.Recv(); err != io.EOF { //nolint:errorlint // bare, on purpose
					t.Fatalf("%v, want a bare io.EOF", err)
				}
				wantStreamEnd(t, c, 1)
			})
		})
	}
	t.Run("sent, proof", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			c, _, b := streamNet(t, true, refusing(wire.Draining, ""), greet("b", 1))
			stream, err := c.Chat(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			_ = stream.Send(&hellov1.ChatRequest{Name: "ada"})
			_, err = stream.Recv()
			wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
			if err := stream.Send(&hellov1.ChatRequest{Name: "ada"}); err != io.EOF { //nolint:errorlint // bare, on purpose
				t.Errorf("Send after the end: %v, want a bare io.EOF", err)
			}
			if b.requests.Load() != 0 {
				t.Error("moved")
			}
			wantStreamEnd(t, c, 0)
		})
	})
}

// A refused stream that nobody reads ends with its ctx.
func TestRefusedStreamThatNobodyReadsEndsWithItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := streamNet(t, false, refusing(wire.Draining, ""), greet("b", 1))
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := c.ListHellos(ctx, &hellov1.ListHellosRequest{Name: "ada"}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)
		if len(c.finished()) != 0 {
			t.Error("finished before anybody asked")
		}
		cancel()
		synctest.Wait()
		wantStreamEnd(t, c, 0)
	})
}

// Or with its connection.
func TestRefusedStreamThatNobodyReadsEndsWithItsConnection(t *testing.T) {
	t.Parallel()
	for name, closing := range map[string]func(*testClient) error{
		"Close of ours":     func(c *testClient) error { return grpc.Close(context.Background(), c.conn) },
		"grpc-go's own one": func(c *testClient) error { return c.conn.Close() },
	} {
		for refused, refusal := range refusals() {
			t.Run(name+" after "+refused, func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					c, _, _ := streamNet(t, false, refusal, greet("b", 1))
					if _, err := c.ListHellos(context.Background(), &hellov1.ListHellosRequest{Name: "ada"}); err != nil {
						t.Fatal(err)
					}
					synctest.Wait()
					began := time.Now()
					if err := closing(c); err != nil || time.Since(began) > 5*time.Second {
						t.Errorf("%v after %v", err, time.Since(began))
					}
					synctest.Wait()
					if got := c.finished(); len(got) != 1 {
						t.Errorf("finished %d times", len(got))
					}
				})
			})
		}
	}
}

// A request that is too large is refused before it is sent.
func TestServerStreamWithALargeRequestIsLocal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, b := streamNet(t, false, greet("a", 1), greet("b", 1))
		_, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: strings.Repeat("x", 5<<20)})
		wantErr(t, err, codes.ResourceExhausted, materpc.Local)
		if b.requests.Load() != 0 {
			t.Error("moved")
		}
		wantStreamEnd(t, c, 0)
	})
}

// The ctx ends at the moment at which the reader moves on: one finish, nothing
// in flight.
func TestCancelRacesWithAMove(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, _, _ := streamNet(t, false, refusing(wire.Draining, ""), greet("b", 2))
		var calls sync.WaitGroup
		for range 200 {
			ctx, cancel := context.WithCancel(t.Context())
			stream, err := c.ListHellos(ctx, &hellov1.ListHellosRequest{Name: "ada"})
			if err != nil {
				t.Fatal(err)
			}
			calls.Go(cancel)
			calls.Go(func() {
				if _, err := readAll(stream); err == nil {
					t.Error("no end")
				}
			})
		}
		calls.Wait()
		synctest.Wait()
		if got := len(c.finished()); got != 200 {
			t.Errorf("%d finishes, want 200", got)
		}
		if got := c.inFlight(); got != 0 {
			t.Errorf("%d in flight", got)
		}
	})
}

// The finish of a stream is grpc-go's own end, on every path, once.
func TestInvariant05StreamFinishesOnceOnEveryPath(t *testing.T) {
	t.Parallel()
	silent := func(s *rawStream) { s.headers() }
	for name, test := range map[string]struct {
		script func(*rawStream)
		end    func(t *testing.T, c *testClient, cancel context.CancelFunc, stream stdgrpc.ServerStreamingClient[hellov1.ListHellosResponse])
		kind   materpc.ErrorKind
	}{
		"EOF": {greet("a", 1), func(_ *testing.T, _ *testClient, _ context.CancelFunc, s stdgrpc.ServerStreamingClient[hellov1.ListHellosResponse]) {
			_, _ = readAll(s)
			_, _ = s.Recv()
		}, materpc.NoError},
		"error": {func(s *rawStream) { s.fail(codes.NotFound, "no") }, func(_ *testing.T, _ *testClient, _ context.CancelFunc, s stdgrpc.ServerStreamingClient[hellov1.ListHellosResponse]) {
			_, _ = readAll(s)
			_, _ = s.Recv()
		}, materpc.RemoteOrNetwork},
		"cancel": {silent, func(_ *testing.T, _ *testClient, cancel context.CancelFunc, _ stdgrpc.ServerStreamingClient[hellov1.ListHellosResponse]) {
			cancel()
		}, materpc.CanceledByBusiness},
		"cancel, then read": {silent, func(t *testing.T, _ *testClient, cancel context.CancelFunc, s stdgrpc.ServerStreamingClient[hellov1.ListHellosResponse]) {
			cancel()
			_, err := s.Recv()
			wantErr(t, err, codes.Canceled, materpc.CanceledByBusiness)
		}, materpc.CanceledByBusiness},
		"Close of the connection": {silent, func(t *testing.T, c *testClient, _ context.CancelFunc, s stdgrpc.ServerStreamingClient[hellov1.ListHellosResponse]) {
			_, _ = s.Header()
			_ = c.conn.Close()
			_, err := s.Recv()
			if materpc.KindOf(err) != materpc.ConnectionLost {
				t.Errorf("%v, kind %v", err, materpc.KindOf(err))
			}
		}, materpc.ConnectionLost},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				c, _, _ := streamNet(t, false, test.script, test.script)
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				ends := 0
				stream, err := c.ListHellos(ctx, &hellov1.ListHellosRequest{Name: "ada"}, stdgrpc.OnFinish(func(error) { ends++ }))
				if err != nil {
					t.Fatal(err)
				}
				synctest.Wait()
				test.end(t, c, cancel, stream)
				synctest.Wait()
				got := c.finished()
				if len(got) != 1 || ends != 1 {
					t.Fatalf("finished %d times, OnFinish %d", len(got), ends)
				}
				if err, _ := got[0].Result(); materpc.KindOf(err) != test.kind {
					t.Errorf("result %v, kind %v; want %v", err, materpc.KindOf(err), test.kind)
				}
			})
		})
	}
}

// A stream middleware runs once a stream, also when the stream moves; one that
// fails after the stream was established ends it.
func TestStreamMiddleware(t *testing.T) {
	t.Parallel()
	t.Run("once, around moves", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			runs := 0
			layer := func(next middleware.Handler) middleware.Handler {
				return func(ctx context.Context, req any) (any, error) {
					runs++
					reply, err := next(ctx, req)
					if _, ok := reply.(stdgrpc.ClientStream); !ok || req != nil {
						t.Errorf("req %T, reply %T, %v", req, reply, err)
					}
					return reply, err
				}
			}
			c, _, _ := streamNet(t, false, refusing(wire.Draining, ""), greet("b", 2), grpc.WithStreamMiddleware(layer))
			stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
			if err != nil {
				t.Fatal(err)
			}
			if got, _ := readAll(stream); got != 2 || runs != 1 {
				t.Errorf("%d messages, %d runs", got, runs)
			}
			wantStreamEnd(t, c, 1)
		})
	})
	t.Run("fails afterwards", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			broken := errors.New("broken")
			layer := func(next middleware.Handler) middleware.Handler {
				return func(ctx context.Context, req any) (any, error) {
					_, _ = next(ctx, req)
					return nil, broken
				}
			}
			c, _, _ := streamNet(t, true, func(*rawStream) {}, func(*rawStream) {}, grpc.WithStreamMiddleware(layer))
			if _, err := c.Chat(t.Context()); !errors.Is(err, broken) {
				t.Fatal(err)
			}
			wantStreamEnd(t, c, 0)
		})
	})
}
