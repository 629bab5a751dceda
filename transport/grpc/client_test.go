package grpc_test

import (
	"context"
	"errors"
	"io"
	"testing"
	"time"

	hello "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

var _ = errors.New
var _ = io.EOF

func TestSmoke(t *testing.T) {
	srv := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hello.RegisterGreeterServer(srv, &hello.UnimplementedGreeterServer{})
	u, err := srv.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	go srv.Start(context.Background())
	conn, err := grpc.NewClient("direct:///"+u.Host, grpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	c := hello.NewGreeterClient(conn)
	ctx, cancel := context.WithTimeout(t.Context(), 3*time.Second)
	defer cancel()
	_, err = c.SayHello(ctx, &hello.SayHelloRequest{Name: "ada"})
	t.Log(err)
	if err := grpc.Close(ctx, conn); err != nil {
		t.Error(err)
	}
	srv.Stop(ctx)
}
