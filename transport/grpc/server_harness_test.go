package grpc_test

import (
	"context"
	"errors"
	"io"
	"net"
	"reflect"
	"runtime"
	"sync"
	"testing"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/test/bufconn"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// fakeGreeter answers plainly; a set field replaces a method.
type fakeGreeter struct {
	hellov1.UnimplementedGreeterServer
	hello   func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error)
	list    func(*hellov1.ListHellosRequest, stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error
	chat    func(stdgrpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]) error
	collect func(stdgrpc.ClientStreamingServer[hellov1.CollectNamesRequest, hellov1.CollectNamesResponse]) error
}

func (f *fakeGreeter) SayHello(ctx context.Context, in *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	if f.hello != nil {
		return f.hello(ctx, in)
	}
	return &hellov1.SayHelloResponse{Message: "hello " + in.GetName()}, nil
}

func (f *fakeGreeter) ListHellos(in *hellov1.ListHellosRequest, stream stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
	if f.list != nil {
		return f.list(in, stream)
	}
	for range in.GetCount() {
		if err := stream.Send(&hellov1.ListHellosResponse{Message: "hello " + in.GetName()}); err != nil {
			return err
		}
	}
	return nil
}

func (f *fakeGreeter) CollectNames(stream stdgrpc.ClientStreamingServer[hellov1.CollectNamesRequest, hellov1.CollectNamesResponse]) error {
	if f.collect != nil {
		return f.collect(stream)
	}
	for n := uint32(0); ; n++ {
		_, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&hellov1.CollectNamesResponse{Count: n})
		}
		if err != nil {
			return err
		}
	}
}

func (f *fakeGreeter) Chat(stream stdgrpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]) error {
	if f.chat != nil {
		return f.chat(stream)
	}
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := stream.Send(&hellov1.ChatResponse{Message: "hello " + in.GetName()}); err != nil {
			return err
		}
	}
}

// eventLog keeps events.
type eventLog struct {
	mu     sync.Mutex
	events []materpc.Event
}

func (l *eventLog) add(e materpc.Event) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.events = append(l.events, e)
}

func (l *eventLog) of(t materpc.EventType) []materpc.Event {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []materpc.Event
	for _, e := range l.events {
		if e.Type == t {
			found = append(found, e)
		}
	}
	return found
}

// types lists the events of one method in their order.
func (l *eventLog) types(method string) []materpc.EventType {
	l.mu.Lock()
	defer l.mu.Unlock()
	var types []materpc.EventType
	for _, e := range l.events {
		if e.Info != nil && e.Info.FullMethod() == method {
			types = append(types, e.Type)
		}
	}
	return types
}

// serverFixture is a running server with plain grpc-go clients.
type serverFixture struct {
	t        *testing.T
	server   *grpc.Server
	listener *bufconn.Listener
	greeter  *fakeGreeter
	events   *eventLog
	started  chan error
	conns    []*stdgrpc.ClientConn
}

// startServer serves on bufconn until the test ends or the test stops it.
func startServer(t *testing.T, greeter *fakeGreeter, opts ...grpc.ServerOption) *serverFixture {
	t.Helper()
	f := &serverFixture{
		t: t, greeter: greeter, events: &eventLog{}, listener: bufconn.Listen(1 << 20), started: make(chan error, 1),
	}
	opts = append([]grpc.ServerOption{grpc.Listener(f.listener), grpc.Events(f.events.add)}, opts...)
	f.server = grpc.NewServer(opts...)
	hellov1.RegisterGreeterServer(f.server, greeter)
	go func() { f.started <- f.server.Start(context.WithoutCancel(t.Context())) }()
	select {
	case <-f.server.Ready():
	case err := <-f.started:
		t.Fatalf("Start: %v", err)
	}
	return f
}

// dial makes a plain client of its own connection.
func (f *serverFixture) dial(opts ...stdgrpc.DialOption) *stdgrpc.ClientConn {
	f.t.Helper()
	opts = append([]stdgrpc.DialOption{
		stdgrpc.WithTransportCredentials(insecure.NewCredentials()),
		stdgrpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return f.listener.DialContext(ctx) }),
	}, opts...)
	conn, err := stdgrpc.NewClient("passthrough:///bufconn", opts...)
	if err != nil {
		f.t.Fatal(err)
	}
	f.conns = append(f.conns, conn)
	return conn
}

func (f *serverFixture) client(opts ...stdgrpc.DialOption) hellov1.GreeterClient {
	return hellov1.NewGreeterClient(f.dial(opts...))
}

// close ends clients and server, so that a bubble finds no goroutine left.
func (f *serverFixture) close() {
	f.t.Helper()
	for _, conn := range f.conns {
		_ = conn.Close()
	}
	if err := f.server.Stop(context.WithoutCancel(f.t.Context())); err != nil {
		f.t.Errorf("Stop: %v", err)
	}
	if err := <-f.started; err != nil {
		f.t.Errorf("Start after Stop: %v", err)
	}
}

// stop stops the server and returns how long it took.
func (f *serverFixture) stop(ctx context.Context) (time.Duration, error) {
	began := time.Now()
	err := f.server.Stop(ctx)
	return time.Since(began), err
}

// governed returns a ctx that carries the header of a materpc client.
func governed(ctx context.Context, nonces ...string) context.Context {
	var pairs []string
	for _, nonce := range nonces {
		pairs = append(pairs, wire.HeaderKey, wire.Header{Caller: "orders", Nonce: nonce}.String())
	}
	return metadata.AppendToOutgoingContext(ctx, pairs...)
}

// proofOf reads the refusal proof of a trailer.
func proofOf(trailer metadata.MD) (wire.Proof, bool) {
	values := trailer.Get(wire.RefusedKey)
	if len(values) != 1 {
		return wire.Proof{}, false
	}
	return wire.ParseRefusal(values[0])
}

func pointerOf(fn any) uintptr { return reflect.ValueOf(fn).Pointer() }

// runtimeGoexit is what testing's FailNow does to a handler.
func runtimeGoexit() { runtime.Goexit() }
