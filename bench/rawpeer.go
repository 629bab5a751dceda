package main

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
	"google.golang.org/grpc/keepalive"
	"google.golang.org/grpc/metadata"
)

// startRaw is grpc-go as it comes.
func startRaw(ctx context.Context, svc *service) (pair, error) {
	return startPlain(ctx, svc, nil, nil)
}

// startSame is grpc-go with the transport settings of transport/grpc, so that
// the difference is the governance alone.
func startSame(ctx context.Context, svc *service) (pair, error) {
	return startGoverned(ctx, svc)
}

// startHeader is startSame with a request header of the size of ours, to see
// what the header costs in grpc-go itself.
func startHeader(ctx context.Context, svc *service) (pair, error) {
	header := metadata.Pairs("bench", "1;bench-client;0123456789abcdef")
	return startGoverned(ctx, svc, grpc.WithChainUnaryInterceptor(
		func(ctx context.Context, method string, in, out any, conn *grpc.ClientConn, invoke grpc.UnaryInvoker, opts ...grpc.CallOption) error {
			return invoke(metadata.NewOutgoingContext(ctx, header), method, in, out, conn, opts...)
		}))
}

func startGoverned(ctx context.Context, svc *service, more ...grpc.DialOption) (pair, error) {
	const message, headers, streams = 4 << 20, 16 << 10, 1024
	server := []grpc.ServerOption{
		grpc.KeepaliveEnforcementPolicy(keepalive.EnforcementPolicy{MinTime: 10 * time.Second, PermitWithoutStream: true}),
		grpc.MaxConcurrentStreams(streams),
		grpc.MaxHeaderListSize(headers),
		grpc.MaxRecvMsgSize(message),
		grpc.MaxSendMsgSize(message),
		grpc.WaitForHandlers(true),
	}
	client := []grpc.DialOption{
		grpc.WithMaxHeaderListSize(headers),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(message), grpc.MaxCallSendMsgSize(message), grpc.MaxRetryRPCBufferSize(0),
		),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		grpc.WithDisableRetry(),
		grpc.WithIdleTimeout(0),
	}
	return startPlain(ctx, svc, server, append(client, more...))
}

func startPlain(ctx context.Context, svc *service, server []grpc.ServerOption, client []grpc.DialOption) (pair, error) {
	listener, err := listen(ctx)
	if err != nil {
		return pair{}, err
	}
	conn, err := grpc.NewClient("passthrough:///"+listener.Addr().String(),
		append(client, grpc.WithTransportCredentials(insecure.NewCredentials()))...)
	if err != nil {
		return pair{}, errors.Join(err, listener.Close())
	}
	srv := grpc.NewServer(server...)
	testgrpc.RegisterBenchmarkServiceServer(srv, svc)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(listener) }() // ends with Stop
	return pair{conn, func() error {
		err := conn.Close()
		srv.Stop()
		return errors.Join(err, <-served)
	}}, nil
}
