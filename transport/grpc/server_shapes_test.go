package grpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"

	ktransport "github.com/go-kratos/kratos/v2/transport"
	"github.com/google/go-cmp/cmp"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

func TestServerServesAllShapesToAPlainClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		callAllShapes(t, f.client())
		synctest.Wait()
		want := []materpc.EventType{materpc.RPCStart, materpc.RPCFinish}
		for _, method := range []string{
			hellov1.Greeter_SayHello_FullMethodName, hellov1.Greeter_ListHellos_FullMethodName,
			hellov1.Greeter_CollectNames_FullMethodName, hellov1.Greeter_Chat_FullMethodName,
		} {
			if diff := cmp.Diff(want, f.events.types(method)); diff != "" {
				t.Errorf("%s: events (-want +got):\n%s", method, diff)
			}
		}
	})
}

func callAllShapes(t *testing.T, client hellov1.GreeterClient) {
	t.Helper()
	reply, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{Name: "a"})
	if err != nil || reply.GetMessage() != "hello a" {
		t.Errorf("SayHello = %v, %v", reply, err)
	}
	list, err := client.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "b", Count: 3})
	if err != nil {
		t.Fatal(err)
	}
	received := 0
	for {
		if _, err = list.Recv(); err != nil {
			break
		}
		received++
	}
	if received != 3 || !errors.Is(err, io.EOF) {
		t.Errorf("ListHellos: %d messages, then %v", received, err)
	}
	collect, err := client.CollectNames(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := collect.Send(&hellov1.CollectNamesRequest{Name: "c"}); err != nil {
			t.Fatal(err)
		}
	}
	if all, err := collect.CloseAndRecv(); err != nil || all.GetCount() != 2 {
		t.Errorf("CollectNames = %v, %v", all, err)
	}
	chat, err := client.Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := chat.Send(&hellov1.ChatRequest{Name: "d"}); err != nil {
		t.Fatal(err)
	}
	if turn, err := chat.Recv(); err != nil || turn.GetMessage() != "hello d" {
		t.Errorf("Chat = %v, %v", turn, err)
	}
	if err := chat.CloseSend(); err != nil {
		t.Fatal(err)
	}
	if _, err := chat.Recv(); !errors.Is(err, io.EOF) {
		t.Errorf("Chat ends with %v", err)
	}
}

func TestServerCallIsTheContextOfItsHandler(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		greeter := &fakeGreeter{}
		f := startServer(t, greeter, grpc.Name("greeter"))
		defer f.close()
		greeter.hello = func(ctx context.Context, in *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			info, ok := materpc.FromContext(ctx)
			if !ok || info.FullMethod() != hellov1.Greeter_SayHello_FullMethodName || info.From() != "orders" || info.To() != "greeter" {
				t.Errorf("RPCInfo = %+v, %v", info, ok)
			}
			tr, ok := ktransport.FromServerContext(ctx)
			if !ok || tr.Operation() != hellov1.Greeter_SayHello_FullMethodName || tr.RequestHeader().Get("tenant") != "t1" {
				t.Errorf("Transporter = %+v, %v", tr, ok)
			}
			if grpc.GetStream(ctx) != nil {
				t.Error("a unary call has a stream")
			}
			return &hellov1.SayHelloResponse{}, nil
		}
		ctx := metadata.AppendToOutgoingContext(governed(t.Context(), "n1"), "tenant", "t1")
		if _, err := f.client().SayHello(ctx, &hellov1.SayHelloRequest{}); err != nil {
			t.Error(err)
		}
	})
}

func TestServerUnknownMethodIsOneEventAndUnimplemented(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		err := f.dial().Invoke(t.Context(), "/hello.v1.Greeter/Nope", &hellov1.SayHelloRequest{}, &hellov1.SayHelloResponse{})
		if status.Code(err) != codes.Unimplemented {
			t.Errorf("error %v, want Unimplemented", err)
		}
		synctest.Wait()
		want := []materpc.EventType{materpc.RPCStart, materpc.UnknownMethod, materpc.RPCFinish}
		if diff := cmp.Diff(want, f.events.types("/hello.v1.Greeter/Nope")); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}

func TestServerUnknownServicePassesTheGate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		echo := func(_ any, ss stdgrpc.ServerStream) error {
			in := &hellov1.SayHelloRequest{}
			if err := ss.RecvMsg(in); err != nil {
				return err
			}
			if _, ok := materpc.FromContext(ss.Context()); !ok {
				t.Error("no call in the ctx of the unknown handler")
			}
			return ss.SendMsg(&hellov1.SayHelloResponse{Message: "proxied " + in.GetName()})
		}
		f := startServer(t, &fakeGreeter{}, grpc.UnknownService(echo))
		defer f.close()
		out := &hellov1.SayHelloResponse{}
		err := f.dial().Invoke(t.Context(), "/other.Service/Method", &hellov1.SayHelloRequest{Name: "x"}, out)
		if err != nil || out.GetMessage() != "proxied x" {
			t.Errorf("reply %v, %v", out, err)
		}
		if n := len(f.events.of(materpc.UnknownMethod)); n != 0 {
			t.Errorf("%d events of unknown methods, want none with a handler", n)
		}
	})
}
