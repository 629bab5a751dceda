package main

import (
	"context"
	"errors"
	"fmt"
	"net"

	"google.golang.org/grpc"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// peer is one implementation: its client connected to its server.
type peer struct {
	name    string
	client  testgrpc.BenchmarkServiceClient
	service *service
	close   func() error
}

// pair is what a starter hands back: a connection to a server that serves svc.
type pair struct {
	conn grpc.ClientConnInterface
	stop func() error
}

// starter makes a pair of one implementation.
type starter struct {
	name  string
	start func(ctx context.Context, svc *service) (pair, error)
}

const (
	nameRaw       = "grpc-go"
	nameSame      = "grpc-go, our settings"
	nameHeader    = "grpc-go, our settings, one header"
	nameKratos    = "Kratos"
	nameUntimed   = "Kratos, no timeouts"
	nameOurs      = "materpc"
	nameDiscovery = "materpc, discovery and events"
)

// ours tells whether the budgets apply to a peer.
func ours(name string) bool { return name == nameOurs || name == nameDiscovery }

func starters() []starter {
	return []starter{
		{nameRaw, startRaw},
		{nameSame, startSame},
		{nameHeader, startHeader},
		{nameKratos, startKratos},
		{nameUntimed, startKratosUntimed},
		{nameOurs, startOurs},
		{nameDiscovery, startDiscovery},
	}
}

// startPeers starts all implementations and proves each with a call.
func startPeers(ctx context.Context) (peers []*peer, err error) {
	defer func() {
		if err != nil {
			err = errors.Join(err, closePeers(peers))
		}
	}()
	warm := unary()
	for _, s := range starters() {
		svc := &service{}
		p, err := s.start(ctx, svc)
		if err != nil {
			return peers, fmt.Errorf("start %s: %w", s.name, err)
		}
		one := &peer{name: s.name, client: testgrpc.NewBenchmarkServiceClient(p.conn), service: svc, close: p.stop}
		peers = append(peers, one)
		if err := warm.run(ctx, waiting{one.client}); err != nil {
			return peers, fmt.Errorf("first call of %s: %w", s.name, err)
		}
	}
	return peers, nil
}

func closePeers(peers []*peer) error {
	var errs []error
	for _, p := range peers {
		if err := p.close(); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", p.name, err))
		}
	}
	return errors.Join(errs...)
}

// waiting makes the first call wait for the connection.
type waiting struct {
	testgrpc.BenchmarkServiceClient
}

// UnaryCall implements [testgrpc.BenchmarkServiceClient].
func (w waiting) UnaryCall(ctx context.Context, in *testgrpc.SimpleRequest, opts ...grpc.CallOption) (*testgrpc.SimpleResponse, error) {
	return w.BenchmarkServiceClient.UnaryCall(ctx, in, append(opts, grpc.WaitForReady(true))...)
}

func listen(ctx context.Context) (net.Listener, error) {
	return (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
}
