package grpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// Close lets calls of all shapes finish up to its wait, then ends them.
func TestCloseWaits(t *testing.T) {
	t.Parallel()
	shapes := map[string]func(ctx context.Context, c *testClient) error{
		"unary": func(ctx context.Context, c *testClient) error { _, err := c.say(ctx); return err },
		"server stream": func(ctx context.Context, c *testClient) error {
			stream, err := c.ListHellos(ctx, &hellov1.ListHellosRequest{Name: "ada"})
			if err != nil {
				return err
			}
			_, err = readAll(stream)
			return eofIsGood(err)
		},
		"client stream": func(ctx context.Context, c *testClient) error {
			stream, err := c.CollectNames(ctx)
			if err != nil {
				return err
			}
			_, err = stream.CloseAndRecv()
			return err
		},
		"bidi": func(ctx context.Context, c *testClient) error {
			stream, err := c.Chat(ctx)
			if err != nil {
				return err
			}
			_, err = readAll(stream)
			return eofIsGood(err)
		},
	}
	for name, call := range shapes {
		for _, test := range []struct {
			lasts, closed time.Duration
			kind          materpc.ErrorKind
		}{{2 * time.Second, 2 * time.Second, materpc.NoError}, {time.Hour, 5 * time.Second, materpc.ConnectionLost}} {
			t.Run(name+" of "+test.lasts.String(), func(t *testing.T) {
				t.Parallel()
				synctest.Test(t, func(t *testing.T) {
					n := newNet(t)
					s := &rawServer{listener: n.listen("a:1"), early: true, script: func(s *rawStream) {
						select {
						case <-time.After(test.lasts):
							s.reply(&hellov1.SayHelloResponse{})
						case <-s.conn.hung:
						}
					}}
					s.start(t)
					c := n.client("direct:///a:1")
					c.awaitReady(t, 1)
					ended := make(chan error, 1)
					go func() { ended <- call(t.Context(), c) }()
					synctest.Wait()
					began := time.Now()
					closing := make(chan error, 1)
					go func() { closing <- grpc.Close(context.Background(), c.conn) }()
					synctest.Wait()
					ends := 0
					_, err := c.say(t.Context(), stdgrpc.OnFinish(func(error) { ends++ }))
					wantErr(t, err, codes.Canceled, materpc.Local)
					_, err = c.Chat(t.Context(), stdgrpc.OnFinish(func(error) { ends++ }))
					wantErr(t, err, codes.Canceled, materpc.Local)
					if ends != 2 {
						t.Errorf("OnFinish of two refused calls ran %d times", ends)
					}
					if err := <-closing; err != nil {
						t.Error(err)
					}
					if took := time.Since(began); took != test.closed {
						t.Errorf("Close took %v, want %v", took, test.closed)
					}
					if err := <-ended; materpc.KindOf(err) != test.kind {
						t.Errorf("the call ended with %v, kind %v", err, materpc.KindOf(err))
					}
					s.close()
				})
			})
		}
	}
}

func eofIsGood(err error) error {
	if errors.Is(err, io.EOF) {
		return nil
	}
	return err
}

// A ctx that ends cuts the wait of Close short; a raw connection is closed and
// named.
func TestInvariant10CloseWaitEndsWhatOutlastsIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(*rawStream) {})
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		go func() { _, _ = c.say(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		began := time.Now()
		if err := grpc.Close(ctx, c.conn); err != nil || time.Since(began) != time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if err := grpc.Close(t.Context(), c.conn); err != nil {
			t.Errorf("a second Close: %v", err)
		}
	})
}

// A client that is closed before its first call leaves nothing behind.
func TestCloseBeforeTheFirstCall(t *testing.T) {
	// Alone, so that goroutines can be counted. A bubble does not end while one
	// of its own is left.
	synctest.Test(t, func(t *testing.T) {
		r := memory.New()
		register(t, r, "a", "a:1")
		before := runtime.NumGoroutine()
		for i := range 1000 {
			target := "discovery:///greeter"
			if i%2 == 0 {
				target = "direct:///a:1,b:1"
			}
			conn, err := grpc.NewClient(target, grpc.WithInsecure(), grpc.WithDiscovery(r),
				grpc.WithOptions(stdgrpc.WithContextDialer(func(context.Context, string) (net.Conn, error) { return nil, errDial })))
			if err != nil {
				t.Fatal(err)
			}
			if err := conn.Close(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		if after := runtime.NumGoroutine(); after > before+5 { // 1,000 clients would leave 1,000
			t.Errorf("%d goroutines before, %d after", before, after)
		}
	})
}
