package main

import (
	"context"
	"errors"
	"time"

	"github.com/go-kratos/kratos/v2/log"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// startKratos is Kratos as it comes: 1 s of timeout on its server, 2 s on its
// client.
func startKratos(ctx context.Context, svc *service) (pair, error) {
	return startKratosWith(ctx, svc, nil, nil)
}

// startKratosUntimed is Kratos without its timeouts: a deadline is dear, and
// the others have none.
func startKratosUntimed(ctx context.Context, svc *service) (pair, error) {
	return startKratosWith(ctx, svc, []kgrpc.ServerOption{kgrpc.Timeout(0)}, []kgrpc.ClientOption{kgrpc.WithTimeout(0)})
}

func startKratosWith(ctx context.Context, svc *service, server []kgrpc.ServerOption, client []kgrpc.ClientOption) (pair, error) {
	// Kratos has one logger a process; its servers greet with it.
	log.SetLogger(log.NewFilter(log.GetLogger(), log.FilterLevel(log.LevelError)))
	srv := kgrpc.NewServer(append(server, kgrpc.Address("127.0.0.1:0"))...)
	testgrpc.RegisterBenchmarkServiceServer(srv, svc)
	endpoint, err := srv.Endpoint()
	if err != nil {
		return pair{}, err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Start(ctx) }() // ends with Stop
	stop := func() error {
		timed, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
		defer cancel()
		return errors.Join(srv.Stop(timed), <-served)
	}
	conn, err := kgrpc.DialInsecure(ctx, append(client, kgrpc.WithEndpoint("direct:///"+endpoint.Host))...)
	if err != nil {
		return pair{}, errors.Join(err, stop())
	}
	return pair{conn, func() error { return errors.Join(conn.Close(), stop()) }}, nil
}
