package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

const (
	// serveCommand as first argument makes this program one of the servers.
	serveCommand = "serve"
	// servingPrefix begins the line by which a server says that it is registered.
	servingPrefix = "serving on "
)

// serve is a server process of the fleet. It differs from any server of yours
// in one thing: it leaves when its parent is gone.
func serve(args []string, stdout, _ io.Writer) (err error) {
	flags := flag.NewFlagSet(serveCommand, flag.ContinueOnError)
	id := flags.String("id", "", "instance id")
	name := flags.String("registry", "", "registry")
	window := flags.Duration("window", 0, "propagation window")
	if err := flags.Parse(args); err != nil {
		return err
	}
	signal.Ignore(os.Interrupt) // ctrl-C reaches the whole group; the parent decides what it means

	reg, err := registry.Open(*name, local.Opener())
	if err != nil {
		return err
	}
	defer closeRegistry(reg, &err)

	server := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(server, newSlowGreeter(*id))
	application := app.New(
		app.ID(*id),
		app.Name(service),
		app.Server(server),
		app.Registrar(reg),
		app.PropagationWindow(*window),
		app.Signal(syscall.SIGTERM),
		app.AfterStart(func(context.Context) error {
			endpoint, err := server.Endpoint()
			if err == nil {
				_, err = fmt.Fprintln(stdout, servingPrefix+endpoint.Host)
			}
			return err
		}),
	)
	go leaveWithParent(application) // ends with the process, which Run's end ends
	return application.Run()
}

// leaveWithParent stops the app when the pipe from the parent breaks: the
// parent has closed it, or died.
func leaveWithParent(application *app.App) {
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = application.Stop() // Run returns the same error
}
