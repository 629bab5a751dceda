package main

import (
	"context"
	"testing"
	"time"

	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

// start runs an app until the test ends.
func start(t *testing.T, a *app.App) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- a.Run() }()
	t.Cleanup(func() {
		if err := a.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFrontCallsHello runs both services on a registry directory of their own.
func TestFrontCallsHello(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reg, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = reg.Close() })
	server := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(server, greeter.New("hello-1"))
	start(t, app.New(app.Name("hello"), app.Server(server), app.Registrar(reg), app.PropagationWindow(0)))

	hello := func(target grpc.Target) (string, error) {
		conn, stop, err := grpc.ProvideClient(target, []grpc.ClientOption{grpc.WithDiscovery(reg), grpc.WithInsecure()})
		if err != nil {
			return "", err
		}
		defer stop()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		// Waits until an instance is registered.
		reply, err := hellov1.NewGreeterClient(conn).SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"}, stdgrpc.WaitForReady(true))
		return reply.GetMessage(), err
	}
	if _, err := hello("discovery:///hello"); err != nil {
		t.Fatal(err)
	}
	front, cleanup, err := wireApp(Config{Address: "127.0.0.1:0", Hello: "discovery:///hello"}, local.Directory(dir))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(cleanup)
	start(t, front)
	if got, err := hello("discovery:///front"); err != nil || got != "welcome! Hello, ada!" {
		t.Errorf("reply %q, %v", got, err)
	}
}
