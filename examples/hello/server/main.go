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

// config is what the flags say.
type config struct {
	addr, registry string
	window         time.Duration
}

func main() {
	c, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		err = run(c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "server:", err)
		os.Exit(1)
	}
}

// parse reads the flags; help is written to out.
func parse(args []string, out io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("server", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error, once
	flags.StringVar(&c.addr, "addr", "127.0.0.1:0", "the `address` to listen on; port 0 takes a free one")
	flags.StringVar(&c.registry, "registry", registry.FromEnvironment("local"),
		"the `registry`: local, local:///DIR or a path; the default is from MATERPC_REGISTRY, if set")
	flags.DurationVar(&c.window, "window", 2*time.Second, "how long calls are still served after deregistration")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(out, "server runs hello.v1.Greeter and registers it. Its flags:")
		flags.SetOutput(out)
		flags.PrintDefaults()
		return c, err
	case err != nil:
		return c, fmt.Errorf("%w; -h lists the flags", err)
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; -h lists the flags", flags.Arg(0))
	}
	return c, nil
}

// run serves until a signal has stopped it.
func run(c config, out io.Writer) (err error) {
	// region:run
	reg, err := registry.Open(c.registry, local.Opener())
	if err != nil {
		return err
	}
	defer closeRegistry(reg, &err)

	server := grpc.NewServer(grpc.Address(c.addr))
	application := app.New(
		app.Name("hello"),
		app.Server(server),
		app.Registrar(reg),
		app.PropagationWindow(c.window),
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
