package grpc_test

import (
	"errors"
	"io"
	"testing"
	"testing/synctest"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/transport/grpc"
)

// orphanNet is two instances; the connection to a takes nothing in any more,
// so what is opened there is never sent. cut ends it.
func orphanNet(t *testing.T, opts ...grpc.ClientOption) (c *testClient, cut func()) {
	t.Helper()
	n := newNet(t)
	a := &rawServer{listener: n.listenSmall("a:1", 4<<10), script: func(*rawStream) {}, early: true, deaf: 1}
	a.start(t)
	b := stdgrpc.NewServer()
	hellov1.RegisterGreeterServer(b, greeter.New("b"))
	listener := n.listen("b:1")
	served := make(chan error, 1)
	go func() { served <- b.Serve(listener) }()
	t.Cleanup(func() {
		b.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	c = n.client("direct:///a:1,b:1", append(opts, ordered)...)
	c.awaitReady(t, 2)
	stuffing, err := c.CollectNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stuffing.Send(&hellov1.CollectNamesRequest{Name: string(make([]byte, 32<<10))}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
	return c, func() {
		for _, conn := range a.live() {
			conn.close()
		}
		synctest.Wait()
	}
}

// A stream that was never sent is refused, not answered for its beginning:
// grpc-go says io.EOF to Send, which ends the sending, and replays what it has.
func TestUnsentClientStreamIsNotAnsweredForItsBeginning(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cut := orphanNet(t)
		stream, err := c.CollectNames(t.Context(), stdgrpc.WaitForReady(true))
		if err != nil {
			t.Fatal(err)
		}
		cut()
		if err := stream.Send(&hellov1.CollectNamesRequest{Name: "ada"}); err != io.EOF { //nolint:errorlint // bare, on purpose
			t.Fatalf("Send: %v, want a bare io.EOF", err)
		}
		reply, err := stream.CloseAndRecv()
		if err == nil {
			t.Fatalf("answered for %d of many names", reply.GetCount())
		}
		wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
	})
}

// When the sending goes on, grpc-go's replay carries all of it.
func TestUnsentClientStreamIsReplayedWhole(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cut := orphanNet(t)
		stream, err := c.CollectNames(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for range 2 {
			if err := stream.Send(&hellov1.CollectNamesRequest{Name: "ada"}); err != nil {
				t.Fatal(err)
			}
		}
		cut()
		if reply, err := stream.CloseAndRecv(); err != nil || reply.GetCount() != 2 || reply.GetServer() != "b" {
			t.Errorf("%v, %v; want 2 names at b", reply, err)
		}
	})
}

// Beside a reader that has had the stream replayed, Send goes to the replay.
func TestUnsentBidiStreamReplayedByItsReader(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c, cut := orphanNet(t)
		stream, err := c.Chat(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		answered := make(chan error, 2)
		go func() {
			for range 2 {
				_, err := stream.Recv()
				answered <- err
			}
		}()
		synctest.Wait()
		cut()
		for range 2 {
			if err := stream.Send(&hellov1.ChatRequest{Name: "ada"}); err != nil {
				t.Fatal(err)
			}
			if err := <-answered; err != nil {
				t.Fatal(err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("%v, want EOF", err)
		}
	})
}
