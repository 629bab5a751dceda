package main

import (
	"context"

	stdgrpc "google.golang.org/grpc"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

// Welcome is the business layer: it asks the hello service and adds its own.
type Welcome struct {
	greeter hellov1.GreeterClient
}

// NewWelcome takes the injected connection.
func NewWelcome(conn *stdgrpc.ClientConn) *Welcome {
	return &Welcome{greeter: hellov1.NewGreeterClient(conn)}
}

// Say returns the greeting of a name.
func (w *Welcome) Say(ctx context.Context, name string) (string, error) {
	reply, err := w.greeter.SayHello(ctx, &hellov1.SayHelloRequest{Name: name})
	if err != nil {
		return "", err
	}
	return "welcome! " + reply.GetMessage(), nil
}

// Front is the service layer: the same API, answered by Welcome.
type Front struct {
	hellov1.UnimplementedGreeterServer
	welcome *Welcome
}

// NewFront takes the business layer.
func NewFront(w *Welcome) *Front { return &Front{welcome: w} }

// SayHello implements hello.v1.Greeter.
func (f *Front) SayHello(ctx context.Context, req *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	text, err := f.welcome.Say(ctx, req.GetName())
	if err != nil {
		return nil, err
	}
	return &hellov1.SayHelloResponse{Message: text}, nil
}
