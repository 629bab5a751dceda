package greeter

import (
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

// Greeter implements hello.v1.Greeter. It has no state but its id: calls run
// concurrently without coordination.
type Greeter struct {
	hellov1.UnimplementedGreeterServer
	id string // of the instance, told in each response
}

// New returns the service of the instance with the given id.
func New(id string) *Greeter { return &Greeter{id: id} }

const (
	// MaxHellos is how many greetings one ListHellos may ask for.
	MaxHellos = 1000
	// MaxNames is how many names one CollectNames may send, since the server
	// holds them all until the caller closes.
	MaxNames = 1000
)

// SayHello greets one name.
func (g *Greeter) SayHello(_ context.Context, in *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	message, err := hello(in.GetName())
	if err != nil {
		return nil, err
	}
	return &hellov1.SayHelloResponse{Message: message, Server: g.id}, nil
}

// ListHellos greets one name as often as asked.
func (g *Greeter) ListHellos(in *hellov1.ListHellosRequest, stream grpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
	message, err := hello(in.GetName())
	if err != nil {
		return err
	}
	if in.GetCount() > MaxHellos {
		return status.Errorf(codes.InvalidArgument, "count is %d, at most %d are sent", in.GetCount(), MaxHellos)
	}
	for range in.GetCount() {
		if err := stream.Send(&hellov1.ListHellosResponse{Message: message, Server: g.id}); err != nil {
			return err
		}
	}
	return nil
}

// CollectNames greets all names at once when the caller has closed.
func (g *Greeter) CollectNames(stream grpc.ClientStreamingServer[hellov1.CollectNamesRequest, hellov1.CollectNamesResponse]) error {
	var names []string
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return err
		}
		if len(names) == MaxNames {
			return status.Errorf(codes.InvalidArgument, "more than %d names", MaxNames)
		}
		if _, err := hello(in.GetName()); err != nil {
			return err
		}
		names = append(names, in.GetName())
	}
	message, err := hello(strings.Join(names, ", "))
	if err != nil {
		return err
	}
	return stream.SendAndClose(&hellov1.CollectNamesResponse{Message: message, Server: g.id, Count: uint32(len(names))})
}

// Chat answers each name until the caller closes.
func (g *Greeter) Chat(stream grpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		message, err := hello(in.GetName())
		if err != nil {
			return err
		}
		if err := stream.Send(&hellov1.ChatResponse{Message: message, Server: g.id}); err != nil {
			return err
		}
	}
}

// hello is the greeting of a name, or InvalidArgument for an empty one.
func hello(name string) (string, error) {
	if name == "" {
		return "", status.Error(codes.InvalidArgument, "name is empty: say whom to greet")
	}
	return fmt.Sprintf("Hello, %s!", name), nil
}
