package grpc_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// TestServerNilOptions: a nil argument is a fault of Endpoint and Start, no panic.
func TestServerNilOptions(t *testing.T) {
	t.Parallel()
	for name, opt := range map[string]func() grpc.ServerOption{
		"middleware": func() grpc.ServerOption { return grpc.Middleware(nil) }, "stream middleware": func() grpc.ServerOption { return grpc.StreamMiddleware(nil) },
		"unary": func() grpc.ServerOption { return grpc.UnaryInterceptor(nil) }, "stream": func() grpc.ServerOption { return grpc.StreamInterceptor(nil) },
		"tracer": func() grpc.ServerOption { return grpc.Tracers(nil) }, "events": func() grpc.ServerOption { return grpc.Events(nil) },
		"admit": func() grpc.ServerOption { return grpc.Admit(nil) }, "options": func() grpc.ServerOption { return grpc.Options(nil) },
	} {
		func() {
			defer func() {
				if p := recover(); p != nil {
					t.Errorf("%s: panic %v", name, p)
				}
			}()
			s := grpc.NewServer(opt(), grpc.Address("127.0.0.1:0"))
			hellov1.RegisterGreeterServer(s, &fakeGreeter{})
			if _, err := s.Endpoint(); err == nil {
				t.Errorf("%s: no fault", name)
			}
			_ = s.Stop(t.Context())
		}()
	}
	s := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(s, &fakeGreeter{})
	s.Use("/*", nil)
	if err := s.Start(t.Context()); err == nil {
		t.Error("Use: no fault")
	}
}

// A mistake of somebody who comes late leaves alone what serves.
func TestLateMistakesLeaveARunningServerAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		f := startServer(t, &fakeGreeter{}, grpc.Slog(slog.New(slog.NewTextHandler(&log, nil))))
		defer f.close()
		f.server.Use("/hello.v1.Greeter/*", nil)
		late := hellov1.Greeter_ServiceDesc
		late.ServiceName = "late.v1.Greeter"
		f.server.RegisterService(&late, &fakeGreeter{})
		_, err := f.server.Endpoint()
		for _, want := range []string{`Use("/hello.v1.Greeter/*"): argument 1 is nil`, `service "late.v1.Greeter" is registered after Start`} {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("Endpoint: %v; want %q in it", err, want)
			}
		}
		if !strings.Contains(log.String(), "late.v1.Greeter") {
			t.Errorf("nobody was told of the late service: %s", log.String())
		}
		if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Errorf("the running server: %v", err)
		}
	})
}

// Warnings reach the process's logger when the server has none of its own.
func TestWarningsAreHeardByDefault(t *testing.T) { // not parallel: slog.Default is the process's
	before := slog.Default()
	defer slog.SetDefault(before)
	var log bytes.Buffer
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, nil)))
	synctest.Test(t, func(t *testing.T) {
		pass := func(next middleware.Handler) middleware.Handler { return next }
		s := grpc.NewServer(grpc.Listener(newListener()), grpc.Middleware(pass))
		s.Use("helloworld", pass)
		s.Use("/hello.v1.Greeter/*", pass)
		hellov1.RegisterGreeterServer(s, &fakeGreeter{})
		served := make(chan error, 1)
		go func() { served <- s.Start(t.Context()) }()
		<-s.Ready()
		if err := errors.Join(s.Stop(t.Context()), <-served); err != nil {
			t.Error(err)
		}
	})
	for _, want := range []string{"no StreamMiddleware", "selectors=[helloworld]"} {
		if !strings.Contains(log.String(), want) {
			t.Errorf("%q is missing in:\n%s", want, log.String())
		}
	}
}

func TestRegistrationWithoutImplementation(t *testing.T) {
	s := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.Slog(slog.New(slog.DiscardHandler)))
	hellov1.RegisterGreeterServer(s, nil)
	if _, err := s.Endpoint(); err == nil || !strings.Contains(err.Error(), `service "hello.v1.Greeter": the implementation is nil`) {
		t.Error(err)
	}
}

func TestEndpointsThatNobodyCanDial(t *testing.T) {
	for _, text := range []string{"grpc://10.0.0.1", "http://10.0.0.1:80", "grpc://:80", "unix:"} {
		u, err := url.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.Endpoint(u)).Endpoint(); err == nil || !strings.Contains(err.Error(), text) {
			t.Errorf("%s: %v", text, err)
		}
	}
}

func TestRemedyOfAnAddressThatIsNone(t *testing.T) {
	for network, address := range map[string]string{"tcp": "127.0.0.1", "tpc": "127.0.0.1:0"} {
		_, err := grpc.NewServer(grpc.Network(network), grpc.Address(address)).Endpoint()
		if err == nil || !strings.Contains(err.Error(), "want an address of this machine") {
			t.Errorf("%s %s: %v", network, address, err)
		}
	}
}

// Without an ExitWait of its own the server waits as long as Stop's ctx says.
func TestExitWaitFollowsTheContextOfStop(t *testing.T) {
	for name, c := range map[string]struct {
		opts   []grpc.ServerOption
		within time.Duration
		want   codes.Code
	}{
		"the ctx alone":   {within: 15 * time.Second, want: codes.OK},
		"the smaller one": {opts: []grpc.ServerOption{grpc.ExitWait(time.Second)}, within: 15 * time.Second, want: codes.Unavailable},
		"the default":     {want: codes.Unavailable},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startServer(t, &fakeGreeter{hello: sleepy(8 * time.Second)}, c.opts...)
				defer f.close()
				done := make(chan error, 1)
				go func() {
					_, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{})
					done <- err
				}()
				synctest.Wait()
				ctx, cancel := context.WithCancel(t.Context())
				if c.within > 0 {
					ctx, cancel = context.WithTimeout(t.Context(), c.within)
				}
				defer cancel()
				_, _ = f.stop(ctx)
				if err := <-done; status.Code(err) != c.want {
					t.Errorf("the call of 8 s: %v, want %v", err, c.want)
				}
			})
		})
	}
}
