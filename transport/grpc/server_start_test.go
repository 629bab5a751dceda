package grpc_test

import (
	"context"
	"crypto/tls"
	"net"
	"net/url"
	"runtime"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

func newListener() *bufconn.Listener { return bufconn.Listen(1 << 20) }

func TestOptionFaultsSurfaceAllAtOnce(t *testing.T) {
	options := []grpc.ServerOption{
		grpc.Timeout(-1), grpc.ExitWait(-1), grpc.MaxConnections(-1), grpc.Endpoint(&url.URL{Host: "x:1"}), grpc.HealthState(nil),
		grpc.Address("256.0.0.1:99999"),
		grpc.Options(stdgrpc.UnaryInterceptor(tagInterceptor(nil, "")), stdgrpc.UnaryInterceptor(tagInterceptor(nil, ""))),
	}
	s := grpc.NewServer(options...)
	_, fromEndpoint := s.Endpoint()
	fromStart := s.Start(t.Context())
	for from, err := range map[string]error{"Endpoint": fromEndpoint, "Start": fromStart} {
		for _, want := range []string{"Timeout -1ns", "ExitWait -1ns", "MaxConnections -1", `Endpoint "//x:1"`, "HealthState", "256.0.0.1", "Options"} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s = %v; want %q in it", from, err, want)
			}
		}
	}
}

func TestTakenPortIsAClearError(t *testing.T) {
	first := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	endpoint, err := first.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = first.Stop(t.Context()) }()
	second := grpc.NewServer(grpc.Address(endpoint.Host))
	if err := second.Start(t.Context()); err == nil || !strings.Contains(err.Error(), endpoint.Host) || !strings.Contains(err.Error(), "in use") {
		t.Errorf("Start on a taken port = %v", err)
	}
	if err := second.Stop(t.Context()); err != nil {
		t.Errorf("Stop after a failed Start = %v", err)
	}
}

func TestFaultyServerKeepsNoPort(t *testing.T) {
	s := grpc.NewServer(grpc.Address("127.0.0.1:45817"), grpc.Timeout(-1))
	if _, err := s.Endpoint(); err == nil {
		t.Fatal("no error")
	}
	l, err := net.Listen("tcp", "127.0.0.1:45817")
	if err != nil {
		t.Fatalf("the port is held by a server that cannot start: %v", err)
	}
	_ = l.Close()
}

func TestInvariant10EndpointIsWhatOthersDial(t *testing.T) {
	tests := map[string]struct {
		opts   []grpc.ServerOption
		prefix string
	}{
		"explicit host": {[]grpc.ServerOption{grpc.Address("127.0.0.1:0")}, "grpc://127.0.0.1:"},
		"name":          {[]grpc.ServerOption{grpc.Address("localhost:0")}, "grpc://localhost:"},
		"tls":           {[]grpc.ServerOption{grpc.Address("127.0.0.1:0"), grpc.TLSConfig(&tls.Config{MinVersion: tls.VersionTLS13})}, "grpcs://127.0.0.1:"},
		"verbatim":      {[]grpc.ServerOption{grpc.Address("127.0.0.1:0"), grpc.Endpoint(&url.URL{Scheme: "grpc", Host: "edge.example:443"})}, "grpc://edge.example:443"},
		"in memory":     {[]grpc.ServerOption{grpc.Listener(newListener())}, "grpc://bufconn"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			s := grpc.NewServer(tt.opts...)
			defer func() { _ = s.Stop(t.Context()) }()
			first, err := s.Endpoint()
			if err != nil || !strings.HasPrefix(first.String(), tt.prefix) || strings.HasSuffix(first.String(), ":0") {
				t.Fatalf("Endpoint = %v, %v; want %s...", first, err, tt.prefix)
			}
			if second, err := s.Endpoint(); err != nil || *second != *first {
				t.Errorf("second Endpoint = %v, %v; want the same", second, err)
			}
		})
	}
}

func TestInvariant10WildcardIsNeverPublished(t *testing.T) {
	for _, address := range []string{":0", "0.0.0.0:0", "[::]:0"} {
		s := grpc.NewServer(grpc.Address(address))
		endpoint, err := s.Endpoint()
		if err == nil && (endpoint.Hostname() == "" || net.ParseIP(endpoint.Hostname()).IsUnspecified() || endpoint.Port() == "0") {
			t.Errorf("%s publishes %v", address, endpoint)
		}
		if err != nil && !strings.Contains(err.Error(), "Endpoint") { // a machine that nobody can dial
			t.Errorf("%s: %v", address, err)
		}
		_ = s.Stop(t.Context())
	}
}

func TestStartTwiceIsAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		if err := f.server.Start(t.Context()); err == nil {
			t.Error("the second Start served")
		}
	})
}

func TestInvariant06MaxConnectionsCountsFromAccept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{}, grpc.MaxConnections(2))
		defer f.close()
		idle, err := f.listener.DialContext(t.Context()) // never says a word
		if err != nil {
			t.Fatal(err)
		}
		first := f.dial()
		if _, err := hellov1.NewGreeterClient(first).SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Fatal(err)
		}
		if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); status.Code(err) != codes.Unavailable {
			t.Errorf("a connection over the bound: %v, want Unavailable", err)
		}
		if refused := f.events.of(materpc.Refusal); len(refused) == 0 || refused[0].Detail != "connections" {
			t.Errorf("refusal events %+v", refused)
		}
		_ = idle.Close()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		if _, err := f.client().SayHello(ctx, &hellov1.SayHelloRequest{}); err != nil {
			t.Errorf("a place was given back: %v, want OK", err)
		}
	})
}

func TestStartStopCyclesLeaveNothing(t *testing.T) {
	cycles := 1000
	if testing.Short() || raceEnabled {
		cycles = 200
	}
	synctest.Test(t, func(t *testing.T) { // a goroutine left behind fails the bubble
		for range cycles {
			f := startServer(t, &fakeGreeter{})
			if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
				t.Fatal(err)
			}
			f.close()
		}
	})
}

func TestStartStopCyclesOnPortsLeaveNoGoroutine(t *testing.T) {
	before := runtime.NumGoroutine()
	var address string
	for range 50 {
		s := grpc.NewServer(grpc.Address("127.0.0.1:0"))
		hellov1.RegisterGreeterServer(s, &fakeGreeter{})
		endpoint, err := s.Endpoint()
		if err != nil {
			t.Fatal(err)
		}
		address = endpoint.Host
		started := make(chan error, 1)
		go func() { started <- s.Start(t.Context()) }()
		<-s.Ready()
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := <-started; err != nil {
			t.Fatal(err)
		}
	}
	l, err := net.Listen("tcp", address)
	if err != nil {
		t.Errorf("the last port is still held: %v", err)
	} else {
		_ = l.Close()
	}
	// Goroutines that have said their last word need a moment to end.
	for deadline := time.Now().Add(5 * time.Second); runtime.NumGoroutine() > before; runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
	}
}
