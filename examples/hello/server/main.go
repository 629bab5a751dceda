// Command server runs hello.v1.Greeter and registers it.
//
//	server -addr 127.0.0.1:0 -registry local
//
// It prints "listening on HOST:PORT" once it serves and is registered. SIGTERM
// and SIGINT stop it in order: deregister, let callers learn of it, finish
// calls, end; a second one ends the waits.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

func main() {
	addr := flag.String("addr", "127.0.0.1:0", "the `address` to listen on; port 0 takes a free one")
	name := flag.String("registry", registry.FromEnvironment("local"), "the `registry`: local, local:///DIR or a path")
	window := flag.Duration("window", 2*time.Second, "how long calls are still served after deregistration")
	flag.Parse()
	if err := run(*addr, *name, *window, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// run serves until a signal has stopped it.
func run(addr, registryName string, window time.Duration, out io.Writer) (err error) {
	// region:run
	reg, err := registry.Open(registryName, local.Opener())
	if err != nil {
		return err
	}
	defer closeRegistry(reg, &err)

	server := grpc.NewServer(grpc.Address(addr))
	application := app.New(
		app.Name("hello"),
		app.Server(server),
		app.Registrar(reg),
		app.PropagationWindow(window),
		app.AfterStart(func(context.Context) error {
			endpoint, err := server.Endpoint()
			if err == nil {
				_, err = fmt.Fprintln(out, "listening on", endpoint.Host)
			}
			return err
		}),
	)
	hellov1.RegisterGreeterServer(server, greeter.New(application.ID()))
	return application.Run()
	// endregion:run
}

// closeRegistry closes what was opened, if it has anything to close.
func closeRegistry(reg registry.Registry, err *error) {
	if closer, ok := reg.(io.Closer); ok {
		*err = errors.Join(*err, closer.Close())
	}
}
