package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

// config is what the flags say.
type config struct {
	target, registry, name, shape string
	timeout                       time.Duration
}

func main() {
	c, err := parse(os.Args[1:], os.Stdout)
	if errors.Is(err, flag.ErrHelp) {
		return
	}
	if err == nil {
		ctx, cancel := context.WithTimeout(context.Background(), c.timeout)
		defer cancel()
		err = run(ctx, c, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, "client:", err)
		os.Exit(1)
	}
}

// parse reads the flags; help is written to out.
func parse(args []string, out io.Writer) (config, error) {
	var c config
	flags := flag.NewFlagSet("client", flag.ContinueOnError)
	flags.SetOutput(io.Discard) // main prints the error, once
	flags.StringVar(&c.target, "target", "discovery:///hello", "the `target`: discovery:///NAME, direct:///HOST:PORT or HOST:PORT")
	flags.StringVar(&c.registry, "registry", registry.FromEnvironment("local"),
		"the `registry` that discovery asks: local, local:///DIR or a path; the default is from MATERPC_REGISTRY, if set")
	flags.StringVar(&c.name, "name", "world", "whom to greet")
	flags.StringVar(&c.shape, "shape", "all", "which calls: all, unary, server stream, client stream or bidi stream")
	flags.DurationVar(&c.timeout, "timeout", 5*time.Second, "for all calls together")
	err := flags.Parse(args)
	switch {
	case errors.Is(err, flag.ErrHelp):
		fmt.Fprintln(out, "client calls hello.v1.Greeter once in each shape. Its flags:")
		flags.SetOutput(out)
		flags.PrintDefaults()
		return c, err
	case err != nil:
		return c, fmt.Errorf("%w; -h lists the flags", err)
	case flags.NArg() > 0:
		return c, fmt.Errorf("unexpected argument %q; names are given with -name, -h lists the flags", flags.Arg(0))
	}
	return c, nil
}

// run connects, greets, and lets running calls finish before it closes.
func run(ctx context.Context, c config, out io.Writer) (err error) {
	// region:run
	reg, err := registry.Open(c.registry, local.Opener())
	if err != nil {
		return err
	}
	defer closeRegistry(reg, &err)

	conn, err := grpc.NewClient(c.target, grpc.WithName("hello-client"), grpc.WithDiscovery(reg), grpc.WithInsecure())
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, grpc.Close(ctx, conn)) }()
	return explain(greet(ctx, hellov1.NewGreeterClient(conn), c.name, c.shape, out), reg)
	// endregion:run
}

// explain adds where we looked to an error that says that nobody is there: a
// directory is made when it is missing, so a typing error finds an empty one.
func explain(err error, reg registry.Registry) error {
	shared, ok := reg.(interface{ Dir() string })
	if !ok || materpc.KindOf(err) != materpc.NoInstance {
		return err
	}
	return fmt.Errorf("%w; the registry is the directory %[2]s: start a server with -registry %[2]s, or give the one that it uses", err, shared.Dir())
}

// closeRegistry closes what was opened, if it has anything to close.
func closeRegistry(reg registry.Registry, err *error) {
	if closer, ok := reg.(io.Closer); ok {
		*err = errors.Join(*err, closer.Close())
	}
}
