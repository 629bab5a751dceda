package grpc_test

import (
	"testing"

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
