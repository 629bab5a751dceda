package main

import (
	"context"
	"errors"
	"sync/atomic"

	testgrpc "google.golang.org/grpc/interop/grpc_testing"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// startOurs is materpc as it comes, with a fixed address.
func startOurs(ctx context.Context, svc *service) (pair, error) {
	srv := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	testgrpc.RegisterBenchmarkServiceServer(srv, svc)
	endpoint, err := srv.Endpoint()
	if err != nil {
		return pair{}, err
	}
	served := make(chan error, 1)
	go func() { served <- srv.Start(ctx) }() // ends with Stop
	stop := func() error { return errors.Join(srv.Stop(context.WithoutCancel(ctx)), <-served) }
	conn, err := grpc.NewClient("direct:///"+endpoint.Host, grpc.WithInsecure())
	if err != nil {
		return pair{}, errors.Join(err, stop())
	}
	return pair{conn, func() error { return errors.Join(conn.Close(), stop()) }}, nil
}

// startDiscovery is materpc with all that exists: an app that registers its
// server, a client that finds it and checks instance ids, and events on both
// sides.
func startDiscovery(ctx context.Context, svc *service) (pair, error) {
	var events atomic.Int64
	count := func(materpc.Event) { events.Add(1) }
	reg := memory.New()
	srv := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.Events(count))
	testgrpc.RegisterBenchmarkServiceServer(srv, svc)
	up := make(chan struct{})
	a := app.New(
		app.Context(ctx), app.Name("bench"), app.Server(srv), app.Registrar(reg), app.Signal(), app.PropagationWindow(0),
		app.AfterStart(func(context.Context) error { close(up); return nil }),
	)
	ran := make(chan error, 1)
	go func() { ran <- a.Run() }() // ends with Stop
	select {
	case <-up:
	case err := <-ran:
		return pair{}, err
	}
	conn, err := grpc.NewClient("discovery:///bench", grpc.WithDiscovery(reg), grpc.WithInsecure(),
		grpc.WithName("bench-client"), grpc.WithEvents(count))
	if err != nil {
		return pair{}, errors.Join(err, a.Stop())
	}
	return pair{conn, func() error { return errors.Join(conn.Close(), a.Stop()) }}, nil
}
