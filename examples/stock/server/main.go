package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"strconv"
	"sync"
	"time"

	stdgrpc "google.golang.org/grpc" // grpc-go, where stubs need its types

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/app"
	stockv1 "github.com/materpc/materpc/examples/stock/api/stock/v1" // your generated stubs
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc" // ours: servers, clients, options
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintln(os.Stderr, "stock server:", err)
		os.Exit(1)
	}
}

// run serves until SIGTERM, SIGINT or SIGQUIT has stopped it in order.
func run() (err error) {
	// region:serve
	reg, err := local.New("") // a directory that processes of one user share
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, reg.Close()) }()

	server := grpc.NewServer(
		grpc.Address("127.0.0.1:0"), // port 0 takes a free one
		grpc.Timeout(time.Second),   // of a unary handler; without it there is none
	)
	stockv1.RegisterStockServer(server, &stock{left: map[string]uint32{"tea": 10}})

	return app.New(
		app.Name("stock"), // what clients call: discovery:///stock
		app.Server(server),
		app.Registrar(reg),
		app.AfterStart(func(context.Context) error {
			fmt.Println("stock serves")
			return nil
		}),
	).Run()
	// endregion:serve
}

// stock implements stock.v1.Stock.
type stock struct {
	stockv1.UnimplementedStockServer

	mu   sync.Mutex
	left map[string]uint32
}

// tooFew is a business code: a number that the service and its callers agree on.
const tooFew = 1001

// region:business
// Reserve answers with a business error when there are too few. The call worked,
// the business said no: it is charged to no instance and not sent again.
func (s *stock) Reserve(_ context.Context, in *stockv1.ReserveRequest) (*stockv1.ReserveResponse, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	left := s.left[in.GetArticle()]
	if in.GetCount() > left {
		return nil, materpc.NewBizError(tooFew, "not enough "+in.GetArticle()).
			WithExtra(map[string]string{"left": strconv.Itoa(int(left))})
	}
	s.left[in.GetArticle()] = left - in.GetCount()
	return &stockv1.ReserveResponse{Left: left - in.GetCount()}, nil
}

// endregion:business

// Watch is a stream: it ends when it has sent what was asked for, or with its ctx.
func (s *stock) Watch(in *stockv1.WatchRequest, stream stdgrpc.ServerStreamingServer[stockv1.WatchResponse]) error {
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for range in.GetTimes() {
		s.mu.Lock()
		left := s.left[in.GetArticle()]
		s.mu.Unlock()
		if err := stream.Send(&stockv1.WatchResponse{Left: left}); err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-stream.Context().Done():
			return stream.Context().Err()
		}
	}
	return nil
}
