package grpc_test

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	kerrors "github.com/go-kratos/kratos/v2/errors"
	kmiddleware "github.com/go-kratos/kratos/v2/middleware"
	kvalidate "github.com/go-kratos/kratos/v2/middleware/validate"
	ktransport "github.com/go-kratos/kratos/v2/transport"
	"github.com/google/go-cmp/cmp"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/health"
	"github.com/materpc/materpc/transport/grpc"
)

// tag makes a middleware that leaves its name.
func tag(seen *[]string, name string) kmiddleware.Middleware {
	return func(next kmiddleware.Handler) kmiddleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			*seen = append(*seen, name)
			return next(ctx, req)
		}
	}
}

func tagInterceptor(seen *[]string, name string) stdgrpc.UnaryServerInterceptor {
	return func(ctx context.Context, req any, _ *stdgrpc.UnaryServerInfo, next stdgrpc.UnaryHandler) (any, error) {
		*seen = append(*seen, name)
		return next(ctx, req)
	}
}

func TestServerOptionsAddUpInKratosOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var seen []string
		f := startServer(t, &fakeGreeter{},
			grpc.Middleware(tag(&seen, "m1")), grpc.Middleware(tag(&seen, "m2")),
			grpc.UnaryInterceptor(tagInterceptor(&seen, "i1")), grpc.UnaryInterceptor(tagInterceptor(&seen, "i2")),
			grpc.Options(stdgrpc.UnaryInterceptor(tagInterceptor(&seen, "raw"))),
			grpc.Options(stdgrpc.ChainUnaryInterceptor(tagInterceptor(&seen, "chained"))),
			func(s *grpc.Server) {},
			nil,
		)
		defer f.close()
		f.server.Use("/hello.v1.Greeter/*", tag(&seen, "prefix"))
		f.server.Use("/hello.v1.*", tag(&seen, "shorter"))
		f.server.Use("/other/*", tag(&seen, "other"))
		client := f.client()
		if _, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Fatal(err)
		}
		want := []string{"raw", "m1", "m2", "prefix", "i1", "i2", "chained"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		seen = nil
		f.server.Use(hellov1.Greeter_SayHello_FullMethodName, tag(&seen, "exact"))
		f.server.Use(hellov1.Greeter_SayHello_FullMethodName, tag(&seen, "exact2"))
		if _, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Fatal(err)
		}
		want = []string{"raw", "m1", "m2", "exact", "exact2", "i1", "i2", "chained"}
		if diff := cmp.Diff(want, seen); diff != "" {
			t.Errorf("order with an exact selector (-want +got):\n%s", diff)
		}
	})
}

func TestCaseB69ReplyHeadersLeaveNativeRetriesAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		mark := func(next kmiddleware.Handler) kmiddleware.Handler {
			return func(ctx context.Context, req any) (any, error) {
				tr, _ := ktransport.FromServerContext(ctx)
				tr.ReplyHeader().Set("x-served-by", "me")
				return next(ctx, req)
			}
		}
		var calls atomic.Int32
		greeter := &fakeGreeter{hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			if calls.Add(1) < 3 {
				return nil, status.Error(codes.Unavailable, "not yet")
			}
			return &hellov1.SayHelloResponse{}, nil
		}}
		f := startServer(t, greeter, grpc.Middleware(mark))
		defer f.close()
		client := f.client(stdgrpc.WithDefaultServiceConfig(`{"methodConfig":[{"name":[{}],"retryPolicy":{"maxAttempts":4,
			"initialBackoff":"0.01s","maxBackoff":"0.1s","backoffMultiplier":1,"retryableStatusCodes":["UNAVAILABLE"]}}]}`))
		var header, trailer metadata.MD
		if _, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{}, stdgrpc.Header(&header), stdgrpc.Trailer(&trailer)); err != nil {
			t.Errorf("call: %v, want OK after native retries", err)
		}
		if got := calls.Load(); got != 3 {
			t.Errorf("%d attempts, want 3", got)
		}
		if header.Get("x-served-by") == nil || trailer.Get("x-served-by") != nil {
			t.Errorf("success: header %v, trailer %v; want the value in the header", header, trailer)
		}
		calls.Store(-100)
		header, trailer = nil, nil
		_, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}, stdgrpc.Header(&header), stdgrpc.Trailer(&trailer))
		if status.Code(err) != codes.Unavailable || header.Get("x-served-by") != nil || trailer.Get("x-served-by") == nil {
			t.Errorf("failure %v: header %v, trailer %v; want the value in the trailer", err, header, trailer)
		}
	})
}

func TestKratosErrorsAndValidateTravel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		greeter := &fakeGreeter{}
		f := startServer(t, greeter, grpc.Middleware(kvalidate.Validator())) //nolint:staticcheck // existing services use it
		defer f.close()
		for name, tt := range map[string]struct {
			give   error
			code   codes.Code
			reason string
		}{
			"kratos":           {kerrors.NotFound("USER", "who"), codes.NotFound, "USER"},
			"context deadline": {context.DeadlineExceeded, codes.DeadlineExceeded, ""},
			"context cancel":   {errors.Join(context.Canceled), codes.Canceled, ""},
			"plain":            {errors.New("odd"), codes.Unknown, ""},
		} {
			greeter.hello = func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
				return nil, tt.give
			}
			_, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{})
			if status.Code(err) != tt.code || kerrors.Reason(err) != tt.reason {
				t.Errorf("%s: %v with reason %q, want %v with %q", name, err, kerrors.Reason(err), tt.code, tt.reason)
			}
		}
	})
}

func TestBizErrorTravelsAsKitexReadsIt(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		biz := materpc.NewBizError(1404, "no stock").WithExtra(map[string]string{"größe": "😀\n"})
		f := startServer(t, &fakeGreeter{hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			return nil, fmt.Errorf("reserve: %w", biz)
		}})
		defer f.close()
		var trailer metadata.MD
		_, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}, stdgrpc.Trailer(&trailer))
		if status.Code(err) != codes.Internal || status.Convert(err).Message() != "no stock" {
			t.Errorf("status %v", err)
		}
		want := metadata.MD{"biz-status": {"1404"}, "biz-extra": {`{"gr\u00f6\u00dfe":"\ud83d\ude00\n"}`}}
		for key, values := range want {
			if diff := cmp.Diff(values, trailer.Get(key)); diff != "" {
				t.Errorf("%s (-want +got):\n%s", key, diff)
			}
		}
		synctest.Wait()
		if finish := f.events.of(materpc.RPCFinish); len(finish) != 1 || finish[0].Kind != materpc.Biz || !strings.HasPrefix(finish[0].Err.Error(), "reserve: ") {
			t.Errorf("finish %+v, want kind Biz and the wrapped error", finish)
		}
	})
}

func TestCaseB26ServerTimeout(t *testing.T) {
	tests := map[string]struct {
		timeout time.Duration
		want    codes.Code
	}{
		"none":      {0, codes.OK},
		"huge":      {1<<63 - 1, codes.OK},
		"100 years": {100 * 365 * 24 * time.Hour, codes.OK},
		"1 ns":      {1, codes.DeadlineExceeded},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := startServer(t, &fakeGreeter{hello: func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
					if deadline, ok := ctx.Deadline(); tt.want == codes.OK && ok && time.Until(deadline) < 24*time.Hour {
						t.Errorf("the handler's deadline is in %v", time.Until(deadline))
					}
					time.Sleep(time.Microsecond)
					return &hellov1.SayHelloResponse{}, ctx.Err()
				}}, grpc.Timeout(tt.timeout))
				defer f.close()
				if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); status.Code(err) != tt.want {
					t.Errorf("error %v, want %v", err, tt.want)
				}
				synctest.Wait()
				if finish := f.events.of(materpc.RPCFinish); tt.want != codes.OK && finish[0].Kind != materpc.RPCTimeout {
					t.Errorf("kind %v, want RPCTimeout", finish[0].Kind)
				}
			})
		})
	}
}

func TestKratosAppRunsTheServer(t *testing.T) { // signal.Notify has no place in a bubble
	greeter := &fakeGreeter{hello: func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
		info, _ := materpc.FromContext(ctx)
		app, ok := kratos.FromContext(ctx)
		if !ok || info.To() != "greeter" || app.ID() != "id-1" {
			t.Errorf("To %q, app %v, %v", info.To(), app, ok)
		}
		return &hellov1.SayHelloResponse{}, nil
	}}
	listener := bufconn.Listen(1 << 20)
	server := grpc.NewServer(grpc.Listener(listener), grpc.Endpoint(&url.URL{Scheme: "grpc", Host: "10.0.0.1:9000"}))
	hellov1.RegisterGreeterServer(server, greeter)
	app := kratos.New(kratos.ID("id-1"), kratos.Name("greeter"), kratos.Server(server), kratos.Signal(syscall.SIGHUP))
	ran := make(chan error, 1)
	go func() { ran <- app.Run() }()
	<-server.Ready()
	f := &serverFixture{t: t, server: server, listener: listener}
	if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
		t.Error(err)
	}
	if diff := cmp.Diff([]string{"grpc://10.0.0.1:9000"}, app.Endpoint()); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	if server.InstanceID() != "id-1" || server.Health().Phase() != health.Ready {
		t.Errorf("id %q, phase %v", server.InstanceID(), server.Health().Phase())
	}
	_ = f.conns[0].Close()
	if err := app.Stop(); err != nil {
		t.Error(err)
	}
	if err := <-ran; err != nil {
		t.Errorf("Run = %v", err)
	}
	if p := server.Health().Phase(); p != health.Stopped {
		t.Errorf("phase %v after the run, want stopped", p)
	}
}
