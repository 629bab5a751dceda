package main

import (
	"context"
	"errors"
	"io"
	"sync/atomic"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

const (
	payloadSize    = 100
	streamMessages = 10 // of each stream
)

// service is gRPC's benchmark service: it echoes payloads.
type service struct {
	testgrpc.UnimplementedBenchmarkServiceServer
	gate atomic.Pointer[gate]
}

// gate holds unary calls back while their goroutines are counted.
type gate struct {
	arrived chan struct{} // one value a call
	open    chan struct{}
}

// UnaryCall echoes.
func (s *service) UnaryCall(_ context.Context, in *testgrpc.SimpleRequest) (*testgrpc.SimpleResponse, error) {
	if g := s.gate.Load(); g != nil {
		g.arrived <- struct{}{}
		<-g.open
	}
	return &testgrpc.SimpleResponse{Payload: in.GetPayload()}, nil
}

// StreamingCall echoes each message.
func (s *service) StreamingCall(stream grpc.BidiStreamingServer[testgrpc.SimpleRequest, testgrpc.SimpleResponse]) error {
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&testgrpc.SimpleResponse{Payload: in.GetPayload()}); err != nil {
			return err
		}
	}
}

// StreamingFromServer sends the payload streamMessages times.
func (s *service) StreamingFromServer(in *testgrpc.SimpleRequest, stream grpc.ServerStreamingServer[testgrpc.SimpleResponse]) error {
	out := &testgrpc.SimpleResponse{Payload: in.GetPayload()}
	for range streamMessages {
		if err := stream.Send(out); err != nil {
			return err
		}
	}
	return nil
}
