package grpc_test

import (
	"context"
	"errors"
	"fmt"
	"os"

	kratos "github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/middleware/recovery"

	"github.com/materpc/materpc"
	hello "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/selector/chash"
	"github.com/materpc/materpc/transport/grpc"
)

// An unchanged Kratos app runs our server; only the import path of
// transport/grpc differs from what it had.
func ExampleServer_kratos() {
	// region:kratos-server
	server := grpc.NewServer(
		grpc.Address("127.0.0.1:0"),
		grpc.Middleware(recovery.Recovery()),
	)
	hello.RegisterGreeterServer(server, greeter.New("hello-1"))
	service := kratos.New(kratos.Name("hello"), kratos.Server(server))
	// endregion:kratos-server

	ended := make(chan error, 1)
	go func() { ended <- service.Run() }()
	<-server.Ready()

	// region:kratos-client
	conn, err := grpc.DialInsecure(context.Background(),
		grpc.WithEndpoint("direct:///"+hostOf(server)),
		grpc.WithMiddleware(recovery.Recovery()),
	)
	// endregion:kratos-client
	if err != nil {
		fmt.Println(err)
		return
	}
	reply, err := hello.NewGreeterClient(conn).SayHello(context.Background(), &hello.SayHelloRequest{Name: "ada"})
	fmt.Println(reply.GetMessage(), err)
	fmt.Println(errors.Join(conn.Close(), service.Stop(), <-ended))
	// Output:
	// Hello, ada! <nil>
	// <nil>
}

func hostOf(s *grpc.Server) string {
	endpoint, err := s.Endpoint()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return ""
	}
	return endpoint.Host
}

// A call says what happened to it.
func ExampleNewClient_kinds() {
	// region:kinds
	conn, err := grpc.NewClient("discovery:///orders",
		grpc.WithName("shop"),
		grpc.WithDiscovery(memory.New()), // nobody is registered there
		grpc.WithInsecure(),
	)
	if err != nil {
		return
	}
	_, err = hello.NewGreeterClient(conn).SayHello(context.Background(), &hello.SayHelloRequest{Name: "ada"})
	switch materpc.KindOf(err) {
	case materpc.NoInstance:
		fmt.Println("nobody is there:", err)
	case materpc.ConnectionLost:
		fmt.Println("it may have run")
	}
	// endregion:kinds
	fmt.Println(errors.Is(err, materpc.NoInstance), grpc.Close(context.Background(), conn))
	// Output:
	// nobody is there: rpc error: code = Unavailable desc = materpc: discovery knows no instance of "orders" with scheme grpc
	// true <nil>
}

// userKey is where the example keeps its user.
type userKey struct{}

// Calls of one user go to one instance.
func ExampleWithHashKey() {
	userOf := func(ctx context.Context) string { user, _ := ctx.Value(userKey{}).(string); return user }
	// region:chash
	conn, err := grpc.NewClient("direct:///10.0.0.1:9000,10.0.0.2:9000",
		grpc.WithStrategy(chash.Strategy()),
		grpc.WithHashKey(userOf), // func(context.Context) string
		grpc.WithInsecure(),
	)
	// endregion:chash
	fmt.Println(err, conn.Close())
	// Output: <nil> <nil>
}
