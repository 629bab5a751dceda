package main

import (
	"context"
	"errors"
	"io"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

// shape is one of the four kinds of call, as a caller writes it with the
// generated stubs. It returns the id of the server that answered.
type shape struct {
	name   string
	stream bool
	// reopens: once a message is under way such a stream cannot move by itself,
	// so a caller that is refused opens another.
	reopens bool
	call    func(context.Context, hellov1.GreeterClient) (server string, err error)
}

var streamShapes = []shape{
	{name: "server stream", stream: true, call: listHellos},
	{name: "client stream", stream: true, reopens: true, call: collectNames},
	{name: "bidi stream", stream: true, reopens: true, call: chat},
}

// shapeOf gives call number n its shape: every tenth is a stream, in turn.
func shapeOf(n int) shape {
	if n%10 != 9 {
		return shape{name: "unary", call: sayHello}
	}
	return streamShapes[n/10%len(streamShapes)]
}

func sayHello(ctx context.Context, client hellov1.GreeterClient) (string, error) {
	out, err := client.SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"})
	return out.GetServer(), err
}

func listHellos(ctx context.Context, client hellov1.GreeterClient) (server string, err error) {
	stream, err := client.ListHellos(ctx, &hellov1.ListHellosRequest{Name: "ada", Count: beats})
	if err != nil {
		return "", err
	}
	for range beats {
		out, err := stream.Recv()
		if err != nil {
			return "", early(err)
		}
		server = out.GetServer()
	}
	return server, atEnd(stream.Recv())
}

func collectNames(ctx context.Context, client hellov1.GreeterClient) (string, error) {
	stream, err := client.CollectNames(ctx)
	if err != nil {
		return "", err
	}
	for range beats {
		if err := stream.Send(&hellov1.CollectNamesRequest{Name: "ada"}); err != nil {
			break // the stream has ended; its result tells why
		}
		if err := pause(ctx, beat); err != nil {
			break
		}
	}
	out, err := stream.CloseAndRecv()
	if err == nil && out.GetCount() != beats {
		return "", errCut
	}
	return out.GetServer(), err
}

func chat(ctx context.Context, client hellov1.GreeterClient) (server string, err error) {
	stream, err := client.Chat(ctx)
	if err != nil {
		return "", err
	}
	for range beats {
		if err := stream.Send(&hellov1.ChatRequest{Name: "ada"}); err != nil && !errors.Is(err, io.EOF) {
			return "", err
		}
		out, err := stream.Recv()
		if err != nil {
			return "", early(err)
		}
		server = out.GetServer()
		if err := pause(ctx, beat-work); err != nil {
			break
		}
	}
	if err := stream.CloseSend(); err != nil {
		return "", err
	}
	return server, atEnd(stream.Recv())
}

var (
	errCut  = errors.New("the stream ended well before its last message")
	errMore = errors.New("the stream went on after its last message")
)

// early is the error of a stream that ended before its last message: a good
// end would be a lie there.
func early(err error) error {
	if errors.Is(err, io.EOF) {
		return errCut
	}
	return err
}

// atEnd wants the good end of a stream.
func atEnd(_ any, err error) error {
	switch {
	case err == nil:
		return errMore
	case errors.Is(err, io.EOF):
		return nil
	}
	return err
}
