package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

// answer is what every response of the service has.
type answer interface {
	GetMessage() string
	GetServer() string
}

// greet makes one call of each shape, or of the one that is named, and prints a
// line for each answer.
func greet(ctx context.Context, client hellov1.GreeterClient, name, shape string, out io.Writer) error {
	known := shape == "all"
	for _, call := range []struct {
		shape string
		make  func(context.Context, hellov1.GreeterClient, string) ([]answer, error)
	}{
		{"unary", sayHello},
		{"server stream", listHellos},
		{"client stream", collectNames},
		{"bidi stream", chat},
	} {
		if shape != "all" && shape != call.shape {
			continue
		}
		known = true
		answers, err := call.make(ctx, client, name)
		if err != nil {
			return fmt.Errorf("%s: %w", call.shape, err)
		}
		for _, a := range answers {
			fmt.Fprintf(out, "%-13s %s (from %s)\n", call.shape, a.GetMessage(), a.GetServer())
		}
	}
	if !known {
		return fmt.Errorf("-shape is %q; give all, unary, server stream, client stream or bidi stream", shape)
	}
	return nil
}

func sayHello(ctx context.Context, client hellov1.GreeterClient, name string) ([]answer, error) {
	out, err := client.SayHello(ctx, &hellov1.SayHelloRequest{Name: name})
	return []answer{out}, err
}

func listHellos(ctx context.Context, client hellov1.GreeterClient, name string) ([]answer, error) {
	stream, err := client.ListHellos(ctx, &hellov1.ListHellosRequest{Name: name, Count: 2})
	if err != nil {
		return nil, err
	}
	return receive(stream.Recv)
}

func collectNames(ctx context.Context, client hellov1.GreeterClient, name string) ([]answer, error) {
	stream, err := client.CollectNames(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range []string{name, "friends"} {
		// EOF says that the call has ended; CloseAndRecv tells why.
		if err := stream.Send(&hellov1.CollectNamesRequest{Name: n}); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	out, err := stream.CloseAndRecv()
	return []answer{out}, err
}

func chat(ctx context.Context, client hellov1.GreeterClient, name string) ([]answer, error) {
	stream, err := client.Chat(ctx)
	if err != nil {
		return nil, err
	}
	for _, n := range []string{name, "again " + name} {
		if err := stream.Send(&hellov1.ChatRequest{Name: n}); err != nil && !errors.Is(err, io.EOF) {
			return nil, err
		}
	}
	if err := stream.CloseSend(); err != nil {
		return nil, err
	}
	return receive(stream.Recv)
}

// receive reads a stream to its end, which is also what frees it.
func receive[A answer](next func() (A, error)) ([]answer, error) {
	var answers []answer
	for {
		a, err := next()
		if errors.Is(err, io.EOF) {
			return answers, nil
		}
		if err != nil {
			return nil, err
		}
		answers = append(answers, a)
	}
}
