package grpc_test

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// TestStatusWriter pins what an abort needs of grpc-go: an exported method of
// an internal type, which ends a call from outside and cancels its ctx.
func TestStatusWriter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ended := make(chan error, 1)
		f := startServer(t, &fakeGreeter{hello: func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			stream := stdgrpc.ServerTransportStreamFromContext(ctx)
			writer, ok := stream.(interface{ WriteStatus(*status.Status) error })
			if !ok {
				t.Errorf("%T has no WriteStatus", stream)
				return nil, nil
			}
			if err := stream.SetTrailer(metadata.Pairs("k", "v")); err != nil {
				t.Error(err)
			}
			if err := writer.WriteStatus(status.New(codes.Aborted, "from outside")); err != nil {
				t.Error(err)
			}
			ended <- ctx.Err()
			return &hellov1.SayHelloResponse{}, nil
		}})
		defer f.close()
		var trailer metadata.MD
		_, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}, stdgrpc.Trailer(&trailer))
		if status.Code(err) != codes.Aborted || len(trailer.Get("k")) != 1 {
			t.Errorf("the caller got %v, trailer %v", err, trailer)
		}
		if err := <-ended; err == nil {
			t.Error("the handler's ctx goes on")
		}
	})
}

// TestServerLimits holds the default numbers that a caller can see.
func TestServerLimits(t *testing.T) {
	big := strings.Repeat("x", 4<<20)
	tests := map[string]struct {
		name   string
		header string
		reply  string
		opts   []grpc.ServerOption
		want   codes.Code
	}{
		"request over 4 MB":      {name: big, want: codes.ResourceExhausted},
		"reply over 4 MB":        {reply: big, want: codes.ResourceExhausted},
		"header over 16 KB":      {header: strings.Repeat("x", 16<<10), want: codes.Internal},
		"header under 16 KB":     {header: strings.Repeat("x", 15<<10), want: codes.OK},
		"the user's options win": {name: big, opts: []grpc.ServerOption{grpc.Options(stdgrpc.MaxRecvMsgSize(8 << 20))}, want: codes.OK},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startServer(t, &fakeGreeter{hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
					return &hellov1.SayHelloResponse{Message: tt.reply}, nil
				}}, tt.opts...)
				defer f.close()
				client := f.client()
				if _, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{}, stdgrpc.MaxCallRecvMsgSize(16<<20)); tt.reply == "" && err != nil {
					t.Fatal(err)
				}
				synctest.Wait() // the server's settings have arrived
				ctx := t.Context()
				if tt.header != "" {
					ctx = metadata.AppendToOutgoingContext(ctx, "k", tt.header)
				}
				_, err := client.SayHello(ctx, &hellov1.SayHelloRequest{Name: tt.name}, stdgrpc.MaxCallRecvMsgSize(16<<20))
				if status.Code(err) != tt.want {
					t.Errorf("error %v, want %v", err, tt.want)
				}
			})
		})
	}
}

// TestStopLetsASlowReaderFinish: the handler has returned, its reply has not
// all gone out.
func TestStopLetsASlowReaderFinish(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reply := strings.Repeat("x", 3<<20)
		f := startServer(t, &fakeGreeter{hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			return &hellov1.SayHelloResponse{Message: reply}, nil
		}})
		defer f.close()
		stream, err := f.dial(stdgrpc.WithStaticStreamWindowSize(64<<10)).NewStream(
			t.Context(), &stdgrpc.StreamDesc{ServerStreams: true}, hellov1.Greeter_SayHello_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.SendMsg(&hellov1.SayHelloRequest{}); err != nil {
			t.Fatal(err)
		}
		if err := stream.CloseSend(); err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // the reply is stuck behind the window
		stopped := make(chan error, 1)
		go func() { stopped <- f.server.Stop(t.Context()) }()
		time.Sleep(700 * time.Millisecond)
		out := &hellov1.SayHelloResponse{}
		if err := stream.RecvMsg(out); err != nil || len(out.GetMessage()) != len(reply) {
			t.Errorf("%d bytes, %v; want all of the reply", len(out.GetMessage()), err)
		}
		if err := <-stopped; err != nil {
			t.Error(err)
		}
	})
}
