package main

import (
	"context"
	"time"

	stdgrpc "google.golang.org/grpc"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
)

const (
	// work is how long a handler takes for one greeting.
	work = 20 * time.Millisecond
	// beats and beat make a stream of about a second, way and work included.
	beats = 10
	beat  = 90 * time.Millisecond
)

// slowGreeter is the greeter of examples/hello with time to be interrupted.
type slowGreeter struct{ *greeter.Greeter }

func newSlowGreeter(id string) slowGreeter { return slowGreeter{greeter.New(id)} }

// SayHello takes 20 ms.
func (g slowGreeter) SayHello(ctx context.Context, in *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	if err := pause(ctx, work); err != nil {
		return nil, err
	}
	return g.Greeter.SayHello(ctx, in)
}

// ListHellos takes a beat before each greeting.
func (g slowGreeter) ListHellos(in *hellov1.ListHellosRequest, stream stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
	return g.Greeter.ListHellos(in, slowList{stream})
}

// CollectNames takes 20 ms beside the time of its caller.
func (g slowGreeter) CollectNames(stream stdgrpc.ClientStreamingServer[hellov1.CollectNamesRequest, hellov1.CollectNamesResponse]) error {
	if err := pause(stream.Context(), work); err != nil {
		return err
	}
	return g.Greeter.CollectNames(stream)
}

// Chat takes 20 ms for each turn.
func (g slowGreeter) Chat(stream stdgrpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]) error {
	return g.Greeter.Chat(slowChat{stream})
}

type slowList struct {
	stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]
}

// Send waits a beat first.
func (s slowList) Send(out *hellov1.ListHellosResponse) error {
	if err := pause(s.Context(), beat); err != nil {
		return err
	}
	return s.ServerStreamingServer.Send(out)
}

type slowChat struct {
	stdgrpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]
}

// Send waits for the work first.
func (s slowChat) Send(out *hellov1.ChatResponse) error {
	if err := pause(s.Context(), work); err != nil {
		return err
	}
	return s.BidiStreamingServer.Send(out)
}
