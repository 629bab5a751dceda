package kratos_test

import (
	"context"
	"errors"
	"io"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

// reply is all that comes back from a call.
type reply struct {
	messages        []string
	header, trailer metadata.MD
	err             error
}

// shape calls one method of the greeter in the way of its shape.
type shape struct {
	name   string
	method string
	unary  bool
	call   func(ctx context.Context, client hellov1.GreeterClient, name string) reply
}

var shapes = []shape{
	{name: "unary", method: "/hello.v1.Greeter/SayHello", unary: true, call: sayHello},
	{name: "server stream", method: "/hello.v1.Greeter/ListHellos", call: listHellos},
	{name: "client stream", method: "/hello.v1.Greeter/CollectNames", call: collectNames},
	{name: "bidi", method: "/hello.v1.Greeter/Chat", call: chat},
}

func sayHello(ctx context.Context, client hellov1.GreeterClient, name string) (r reply) {
	out, err := client.SayHello(ctx, &hellov1.SayHelloRequest{Name: name}, grpc.WaitForReady(true), grpc.Header(&r.header), grpc.Trailer(&r.trailer))
	if r.err = err; err == nil {
		r.messages = []string{out.GetMessage()}
	}
	return r
}

func listHellos(ctx context.Context, client hellov1.GreeterClient, name string) reply {
	stream, err := client.ListHellos(ctx, &hellov1.ListHellosRequest{Name: name, Count: 3}, grpc.WaitForReady(true))
	if err != nil {
		return reply{err: err}
	}
	return drain(stream, func() (string, error) { out, err := stream.Recv(); return out.GetMessage(), err })
}

func collectNames(ctx context.Context, client hellov1.GreeterClient, name string) reply {
	stream, err := client.CollectNames(ctx, grpc.WaitForReady(true))
	if err != nil {
		return reply{err: err}
	}
	for _, n := range []string{name, "bob", "cleo"} {
		if err := stream.Send(&hellov1.CollectNamesRequest{Name: n}); err != nil && !errors.Is(err, io.EOF) {
			return reply{err: err}
		}
	}
	out, err := stream.CloseAndRecv()
	r := reply{err: err, trailer: stream.Trailer()}
	r.header, _ = stream.Header() // a failure is the same as above
	if err == nil {
		r.messages = []string{out.GetMessage()}
	}
	return r
}

func chat(ctx context.Context, client hellov1.GreeterClient, name string) reply {
	stream, err := client.Chat(ctx, grpc.WaitForReady(true))
	if err != nil {
		return reply{err: err}
	}
	for _, n := range []string{name, "bob"} {
		if err := stream.Send(&hellov1.ChatRequest{Name: n}); err != nil && !errors.Is(err, io.EOF) {
			return reply{err: err}
		}
	}
	if err := stream.CloseSend(); err != nil {
		return reply{err: err}
	}
	return drain(stream, func() (string, error) { out, err := stream.Recv(); return out.GetMessage(), err })
}

// drain reads a stream to its end.
func drain(stream grpc.ClientStream, receive func() (string, error)) (r reply) {
	for {
		message, err := receive()
		if err != nil {
			r.header, _ = stream.Header() // a failure is the same as err
			r.trailer = stream.Trailer()
			if !errors.Is(err, io.EOF) {
				r.err = err
			}
			return r
		}
		r.messages = append(r.messages, message)
	}
}
