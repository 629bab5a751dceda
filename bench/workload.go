package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"time"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// workload is one operation that a caller repeats.
type workload struct {
	name string
	// weight is how many unary calls an operation is like, so that blocks of
	// all workloads take about the same time.
	weight int
	// budget is how many allocations we may add to an operation, 0 if no budget
	// of the design speaks of the workload.
	budget float64
	run    func(ctx context.Context, client testgrpc.BenchmarkServiceClient) error
}

func unary() workload {
	in := request()
	return workload{"unary", 1, maxAddedAllocs, func(ctx context.Context, client testgrpc.BenchmarkServiceClient) error {
		_, err := client.UnaryCall(ctx, in)
		return err
	}}
}

// unaryDeadline is unary with a deadline of the caller, far enough never to fire.
func unaryDeadline() workload {
	in := request()
	return workload{"unary, deadline", 1, maxAddedAllocs, func(ctx context.Context, client testgrpc.BenchmarkServiceClient) error {
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		_, err := client.UnaryCall(ctx, in)
		return err
	}}
}

// pingPong is one bidi stream of streamMessages round trips.
func pingPong() workload {
	in := request()
	return workload{"bidi stream", streamMessages, 0, func(ctx context.Context, client testgrpc.BenchmarkServiceClient) error {
		stream, err := client.StreamingCall(ctx)
		if err != nil {
			return err
		}
		for range streamMessages {
			if err := stream.Send(in); err != nil {
				return err
			}
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		if err := stream.CloseSend(); err != nil {
			return err
		}
		return expectEnd(stream.Recv())
	}}
}

// download is one server stream of streamMessages messages.
func download() workload {
	in := request()
	return workload{"server stream", streamMessages / 2, 0, func(ctx context.Context, client testgrpc.BenchmarkServiceClient) error {
		stream, err := client.StreamingFromServer(ctx, in)
		if err != nil {
			return err
		}
		for range streamMessages {
			if _, err := stream.Recv(); err != nil {
				return err
			}
		}
		return expectEnd(stream.Recv())
	}}
}

func request() *testgrpc.SimpleRequest {
	return &testgrpc.SimpleRequest{Payload: &testgrpc.Payload{Body: make([]byte, payloadSize)}}
}

func expectEnd(_ *testgrpc.SimpleResponse, err error) error {
	switch {
	case errors.Is(err, io.EOF):
		return nil
	case err != nil:
		return err
	default:
		return fmt.Errorf("a stream went on after %d messages", streamMessages)
	}
}
