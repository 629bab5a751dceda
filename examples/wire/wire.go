//go:build wireinject

package main

import (
	"github.com/google/wire"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

// region:build

func wireApp(Config, local.Directory) (*app.App, func(), error) {
	panic(wire.Build(local.ProviderSet, grpc.ServerSet, grpc.ClientSet, app.Set, ProviderSet))
}

// endregion:build
