package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/materpc/materpc"
	stockv1 "github.com/materpc/materpc/examples/stock/api/stock/v1" // your generated stubs
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

func main() {
	if err := run(context.Background(), os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "stock client:", err)
		os.Exit(1)
	}
}

// run reserves some tea, then too much of it, and watches what is left.
func run(ctx context.Context, out io.Writer) (err error) {
	// region:connect
	reg, err := local.New("")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reg.Close()) }()

	conn, err := grpc.NewClient("discovery:///stock",
		grpc.WithName("shop"), // the caller, as the service sees it
		grpc.WithDiscovery(reg),
		grpc.WithInsecure(),             // or WithTLSConfig; one of them must be said
		grpc.WithTimeout(2*time.Second), // of a unary call; without it there is none
	)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, grpc.Close(ctx, conn)) }() // running calls first
	client := stockv1.NewStockClient(conn)
	// endregion:connect

	for _, count := range []uint32{2, 1000} {
		reply, err := client.Reserve(ctx, &stockv1.ReserveRequest{Article: "tea", Count: count})
		if err != nil {
			fmt.Fprintf(out, "%d of tea: %s\n", count, explain(err))
			continue
		}
		fmt.Fprintf(out, "%d of tea: reserved, %d left\n", count, reply.GetLeft())
	}
	return watch(ctx, client, out)
}

// region:explain
// explain tells what an error means to this caller.
func explain(err error) string {
	if biz, ok := materpc.BizErrorOf(err); ok {
		return fmt.Sprintf("refused with code %d, %s, %s left", biz.BizStatusCode(), biz.BizMessage(), biz.BizExtra()["left"])
	}
	switch kind := materpc.KindOf(err); kind {
	case materpc.RPCTimeout:
		return "took longer than our timeout"
	case materpc.NoInstance, materpc.ServiceDiscovery, materpc.GetConnection:
		return "nobody is there to ask: " + err.Error()
	case materpc.ConnectionLost:
		return "may have been reserved, the connection ended before the answer"
	default:
		return fmt.Sprintf("failed as %v: %v", kind, err)
	}
}

// endregion:explain

// watch reads a stream to its end. WithTimeout is for unary calls; what bounds a
// stream is its ctx.
func watch(ctx context.Context, client stockv1.StockClient, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	stream, err := client.Watch(ctx, &stockv1.WatchRequest{Article: "tea", Times: 3})
	if err != nil {
		return err
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(out, "left:", in.GetLeft())
	}
}
