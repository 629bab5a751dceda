package main

import (
	"context"
	"fmt"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/wire"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// ProviderSet are the parts of this service; those of materpc are in their own
// packages.
var ProviderSet = wire.NewSet(newTarget, newClientOptions, newServerOptions, newAppOptions, NewWelcome, NewFront)

func newTarget(c Config) grpc.Target { return grpc.Target(c.Hello) }

func newClientOptions(d kregistry.Discovery) []grpc.ClientOption {
	return []grpc.ClientOption{grpc.WithName("front"), grpc.WithDiscovery(d), grpc.WithInsecure()}
}

func newServerOptions(c Config) []grpc.ServerOption {
	return []grpc.ServerOption{grpc.Address(c.Address)}
}

func newAppOptions(s *grpc.Server, front *Front, r kregistry.Registrar) []app.Option {
	hellov1.RegisterGreeterServer(s, front)
	return []app.Option{
		app.Name("front"), app.Server(s), app.Registrar(r),
		app.AfterStart(func(context.Context) error {
			endpoint, err := s.Endpoint()
			if err == nil {
				_, err = fmt.Println("listening on", endpoint.Host)
			}
			return err
		}),
	}
}
