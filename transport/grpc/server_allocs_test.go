package grpc_test

import (
	"context"
	"testing"

	stdgrpc "google.golang.org/grpc"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// TestServerAllocs guards what the chain adds to a unary call with nothing
// configured: the record of the call.
func TestServerAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := grpc.NewServer(grpc.Listener(newListener()))
	hellov1.RegisterGreeterServer(s, &fakeGreeter{})
	ours := grpc.UnaryHandlerOf(s, hellov1.Greeter_SayHello_FullMethodName)
	raw := hellov1.Greeter_ServiceDesc.Methods[0].Handler
	greeter := &constantGreeter{reply: &hellov1.SayHelloResponse{}}
	decode := func(any) error { return nil }
	interceptor := grpc.InterceptorOf(s)
	ctx := t.Context()
	measure := func(handler stdgrpc.MethodHandler, interceptor stdgrpc.UnaryServerInterceptor) float64 {
		return testing.AllocsPerRun(1000, func() {
			if _, err := handler(greeter, ctx, decode, interceptor); err != nil {
				t.Error(err)
			}
		})
	}
	base, got := measure(raw, nil), measure(ours, interceptor)
	t.Logf("allocations of the handler: %v raw, %v behind the chain", base, got)
	if added := got - base; added > 1 {
		t.Errorf("the chain adds %v allocations, want at most 1", added)
	}
}

func BenchmarkServerChain(b *testing.B) {
	s := grpc.NewServer(grpc.Listener(newListener()))
	hellov1.RegisterGreeterServer(s, &fakeGreeter{})
	handlers := map[string]stdgrpc.MethodHandler{
		"raw":  hellov1.Greeter_ServiceDesc.Methods[0].Handler,
		"ours": grpc.UnaryHandlerOf(s, hellov1.Greeter_SayHello_FullMethodName),
	}
	greeter := &constantGreeter{reply: &hellov1.SayHelloResponse{}}
	decode := func(any) error { return nil }
	for name, handler := range handlers {
		b.Run(name, func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				_, _ = handler(greeter, b.Context(), decode, nil)
			}
		})
	}
}

// constantGreeter allocates nothing.
type constantGreeter struct {
	hellov1.UnimplementedGreeterServer
	reply *hellov1.SayHelloResponse
}

func (g *constantGreeter) SayHello(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	return g.reply, nil
}
