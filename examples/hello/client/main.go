// Command client calls hello.v1.Greeter once in each of the four shapes and
// prints what came back.
//
//	client -target discovery:///hello -registry local -name ada
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

func main() {
	target := flag.String("target", "discovery:///hello", "the `target`: discovery:///NAME, direct:///HOST:PORT or HOST:PORT")
	registryName := flag.String("registry", registry.FromEnvironment("local"), "the `registry` that discovery asks: local, local:///DIR or a path")
	name := flag.String("name", "world", "whom to greet")
	timeout := flag.Duration("timeout", 5*time.Second, "for all calls together")
	flag.Parse()
	ctx, cancel := context.WithTimeout(context.Background(), *timeout)
	defer cancel()
	if err := run(ctx, *target, *registryName, *name, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// run connects, greets, and lets running calls finish before it closes.
func run(ctx context.Context, target, registryName, name string, out io.Writer) (err error) {
	// region:run
	reg, err := registry.Open(registryName, local.Opener())
	if err != nil {
		return err
	}
	defer closeRegistry(reg, &err)

	conn, err := grpc.NewClient(target, grpc.WithName("hello-client"), grpc.WithDiscovery(reg), grpc.WithInsecure())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, grpc.Close(ctx, conn)) }()
	return greet(ctx, hellov1.NewGreeterClient(conn), name, out)
	// endregion:run
}

// closeRegistry closes what was opened, if it has anything to close.
func closeRegistry(reg registry.Registry, err *error) {
	if closer, ok := reg.(io.Closer); ok {
		*err = errors.Join(*err, closer.Close())
	}
}
