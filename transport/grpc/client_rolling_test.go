package grpc_test

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// TestRollingRestarts restarts two servers in turn, and the only one of a
// second client, under unary calls and server streams: nothing fails, and
// nothing runs twice.
func TestRollingRestarts(t *testing.T) {
	t.Parallel()
	for target, addresses := range map[string][]string{"direct:///a:1,b:1": {"a:1", "b:1"}, "direct:///a:1": {"a:1"}} {
		t.Run(target, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { rollingRestarts(t, target, addresses) })
		})
	}
}

// countingGreeter takes its time and counts what it runs.
func countingGreeter(ran *atomic.Int64) *fakeGreeter {
	return &fakeGreeter{
		hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			ran.Add(1)
			time.Sleep(3 * time.Millisecond)
			return &hellov1.SayHelloResponse{}, nil
		},
		list: func(_ *hellov1.ListHellosRequest, s stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
			ran.Add(1)
			for range 3 {
				time.Sleep(2 * time.Millisecond)
				if err := s.Send(&hellov1.ListHellosResponse{}); err != nil {
					return err
				}
			}
			return nil
		},
	}
}

func rollingRestarts(t *testing.T, target string, addresses []string) {
	n := newNet(t)
	var ran atomic.Int64
	greeter := countingGreeter(&ran)
	start := func(address string) func() {
		s := grpc.NewServer(grpc.Listener(n.listen(address)))
		hellov1.RegisterGreeterServer(s, greeter)
		served := make(chan error, 1)
		go func() { served <- s.Start(context.Background()) }()
		<-s.Ready()
		return func() {
			if err := errors.Join(s.Stop(context.Background()), <-served); err != nil {
				t.Error(err)
			}
		}
	}
	stops := make(map[string]func())
	for _, address := range addresses {
		stops[address] = start(address)
	}
	c := n.client(target)
	c.awaitReady(t, len(addresses))
	wait := stdgrpc.WaitForReady(len(addresses) == 1) // alone, there is nothing else to call meanwhile
	ctx, cancel := context.WithCancel(t.Context())
	var callers sync.WaitGroup
	var done atomic.Int64
	judge := func(err error) {
		done.Add(1)
		if err != nil {
			t.Errorf("%v, kind %v", err, materpc.KindOf(err))
		}
	}
	for range 16 {
		callers.Go(func() {
			for ctx.Err() == nil {
				_, err := c.say(t.Context(), wait)
				judge(err)
			}
		})
		callers.Go(func() {
			for ctx.Err() == nil {
				stream, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"}, wait)
				if err == nil {
					if _, err = readAll(stream); errors.Is(err, io.EOF) {
						err = nil
					}
				}
				judge(err)
			}
		})
	}
	for range 5 {
		for _, address := range addresses {
			time.Sleep(50 * time.Millisecond)
			stops[address]()
			stops[address] = start(address)
			c.awaitReady(t, len(addresses))
		}
	}
	cancel()
	callers.Wait()
	if ran.Load() != done.Load() {
		t.Errorf("%d calls ran %d times", done.Load(), ran.Load())
	}
	t.Logf("%d calls, %d moves", done.Load(), len(c.events.of(materpc.Move)))
	if got := c.inFlight(); got != 0 {
		t.Errorf("%d in flight", got)
	}
	_ = c.conn.Close()
	for _, stop := range stops {
		stop()
	}
}
