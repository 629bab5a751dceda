package grpc_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"testing"
	"testing/synctest"
	"weak"

	"google.golang.org/grpc/codes"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

// TestServerStreamLetsGoOfItsRequest: it is kept for a move alone, and a stream
// may last for days.
func TestServerStreamLetsGoOfItsRequest(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	hung := make(chan struct{})
	n.raw("a:1", func(s *rawStream) {
		s.headers()
		s.message(&hellov1.ListHellosResponse{})
		<-hung
	})
	t.Cleanup(func() { close(hung) })
	c := n.client("direct:///a:1")
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	req := &hellov1.ListHellosRequest{Name: string(make([]byte, 1<<16))}
	kept := weak.Make(req)
	stream, err := c.ListHellos(ctx, req)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Recv(); err != nil {
		t.Fatal(err)
	}
	await(t, "the request to be collected", func() bool { runtime.GC(); return kept.Value() == nil })
	runtime.KeepAlive(stream)
}

// lastingContext is one that outlives the stream, and for which the context
// package needs a goroutine to follow it.
type lastingContext struct {
	context.Context
	done chan struct{}
}

func (c lastingContext) Done() <-chan struct{} { return c.done }

// TestHeaderOfAnEmptyStreamLeavesNothingAtItsContext: the bubble would find the
// goroutine that waits for the ctx.
func TestHeaderOfAnEmptyStreamLeavesNothingAtItsContext(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := &rawServer{listener: n.listen("a:1"), early: true, script: func(s *rawStream) { s.fail(codes.OK, "") }}
		a.start(t)
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		stream, err := c.Chat(lastingContext{t.Context(), make(chan struct{})})
		if err != nil {
			t.Fatal(err)
		}
		_ = stream.Send(&hellov1.ChatRequest{})
		if md, err := stream.Header(); md != nil || err != nil {
			t.Fatalf("header %v, %v", md, err)
		}
		if _, err := stream.Recv(); !errors.Is(err, io.EOF) {
			t.Fatalf("Recv: %v, want EOF", err)
		}
	})
}
