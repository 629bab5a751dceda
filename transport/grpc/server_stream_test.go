package grpc_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	klog "github.com/go-kratos/kratos/v2/log"
	kmetadata "github.com/go-kratos/kratos/v2/metadata"
	kmiddleware "github.com/go-kratos/kratos/v2/middleware"
	klogging "github.com/go-kratos/kratos/v2/middleware/logging"
	kmetamiddleware "github.com/go-kratos/kratos/v2/middleware/metadata"
	krecovery "github.com/go-kratos/kratos/v2/middleware/recovery"
	"github.com/google/go-cmp/cmp"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/transport/grpc"
)

// fakeLog keeps what Kratos's logging middleware writes.
type fakeLog struct {
	mu    sync.Mutex
	lines []map[string]any
}

func (l *fakeLog) Log(_ klog.Level, keyvals ...any) error {
	line := map[string]any{}
	for i := 0; i+1 < len(keyvals); i += 2 {
		key, _ := keyvals[i].(string)
		line[key] = keyvals[i+1]
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.lines = append(l.lines, line)
	return nil
}

func (l *fakeLog) all() []map[string]any {
	l.mu.Lock()
	defer l.mu.Unlock()
	return append([]map[string]any(nil), l.lines...)
}

func listOne(t *testing.T, ctx context.Context, client hellov1.GreeterClient) (received int, err error) {
	t.Helper()
	stream, err := client.ListHellos(ctx, &hellov1.ListHellosRequest{Name: "x", Count: 1})
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err = stream.Recv(); err != nil {
			return received, err
		}
		received++
	}
}

func TestCaseB71StreamPanicsBecomeInternal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		log := &fakeLog{}
		admission := &fakeAdmission{}
		ms := []kmiddleware.Middleware{klogging.Server(log), kmetamiddleware.Server()}
		greeter := &fakeGreeter{}
		f := startServer(t, greeter, grpc.Middleware(ms...), grpc.StreamMiddleware(ms...), grpc.Admit(admission))
		defer f.close()
		client := f.client()

		greeter.list = func(_ *hellov1.ListHellosRequest, stream stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
			if err := stream.Send(&hellov1.ListHellosResponse{}); err != nil {
				return err
			}
			panic("secret of the handler")
		}
		n, err := listOne(t, t.Context(), client)
		if n != 1 || status.Code(err) != codes.Internal || strings.Contains(err.Error(), "secret") {
			t.Errorf("(1) %d messages, then %v; want 1, then Internal without the panic's value", n, err)
		}
		synctest.Wait()
		panics := f.events.of(materpc.HandlerPanic)
		var panicked *grpc.PanicError
		if len(panics) != 1 || !errors.As(panics[0].Err, &panicked) || panicked.Value != "secret of the handler" || len(panicked.Stack) == 0 {
			t.Errorf("(1) panic events %+v", panics)
		}
		if _, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Errorf("(2) unary call after the panic: %v", err)
		}

		greeter.list = func(_ *hellov1.ListHellosRequest, stream stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
			if md, ok := kmetadata.FromServerContext(stream.Context()); !ok || md.Get("x-md-global-tenant") != "t1" {
				t.Errorf("(3) metadata in the handler: %v, %v", md, ok)
			}
			return status.Error(codes.NotFound, "no such list")
		}
		ctx := metadata.AppendToOutgoingContext(t.Context(), "x-md-global-tenant", "t1")
		before := len(log.all())
		if _, err := listOne(t, ctx, client); status.Code(err) != codes.NotFound {
			t.Errorf("(3) stream ends with %v, want NotFound", err)
		}
		synctest.Wait()
		lines := log.all()[before:]
		if len(lines) != 1 || lines[0]["code"] != int32(404) || lines[0]["args"] != "server stream /hello.v1.Greeter/ListHellos" {
			t.Errorf("(3) log lines of one stream: %v; want one with code 404", lines)
		}

		admission.mu.Lock()
		admission.refusal = &grpc.Refusal{Reason: grpc.ReasonOverloaded}
		admission.mu.Unlock()
		if n, err := listOne(t, t.Context(), client); n != 0 || status.Code(err) != codes.ResourceExhausted {
			t.Errorf("(4) limited stream: %d messages, then %v; want ResourceExhausted at open", n, err)
		}
	})
}

func TestCaseB71PanickingMiddlewareIsInternal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := func(kmiddleware.Handler) kmiddleware.Handler {
			return func(context.Context, any) (any, error) { panic("logger") }
		}
		badStream := func(any, stdgrpc.ServerStream, *stdgrpc.StreamServerInfo, stdgrpc.StreamHandler) error {
			panic("interceptor")
		}
		f := startServer(t, &fakeGreeter{}, grpc.Middleware(bad, krecovery.Recovery()), grpc.StreamMiddleware(bad))
		g := startServer(t, &fakeGreeter{}, grpc.StreamInterceptor(badStream))
		defer f.close()
		defer g.close()
		if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); status.Code(err) != codes.Internal {
			t.Errorf("unary: %v, want Internal", err)
		}
		if _, err := listOne(t, t.Context(), f.client()); status.Code(err) != codes.Internal {
			t.Errorf("stream: %v, want Internal", err)
		}
		if _, err := listOne(t, t.Context(), g.client()); status.Code(err) != codes.Internal {
			t.Errorf("stream interceptor: %v, want Internal", err)
		}
	})
}

// panickyTracer is a tracer that never works.
type panickyTracer struct{}

func (panickyTracer) Start(context.Context) context.Context { panic("start") }
func (panickyTracer) Finish(context.Context)                { panic("finish") }

func TestInvariant12PanickingObserversEndNoCall(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{}, grpc.Tracers(panickyTracer{}), grpc.Events(func(materpc.Event) { panic("event") }))
		defer f.close()
		callAllShapes(t, f.client())
	})
}

func TestHandlerThatEndsItsGoroutineStillAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admission := &fakeAdmission{}
		f := startServer(t, &fakeGreeter{hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			runtimeGoexit()
			return nil, nil
		}}, grpc.Admit(admission))
		defer f.close()
		if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); status.Code(err) != codes.Internal {
			t.Errorf("error %v, want Internal", err)
		}
		synctest.Wait()
		if n := len(f.events.of(materpc.RPCFinish)); n != 1 || admission.held() != 0 {
			t.Errorf("%d finishes, %d permits left; want 1 and 0", n, admission.held())
		}
	})
}

type streamKey struct{}

func TestStreamMiddlewareRunsOnceAroundTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		var seen []string
		note := func(s string) { mu.Lock(); defer mu.Unlock(); seen = append(seen, s) }
		outer := func(next kmiddleware.Handler) kmiddleware.Handler {
			return func(ctx context.Context, req any) (any, error) {
				stream, ok := req.(*grpc.Stream)
				if !ok || stream.Method() != hellov1.Greeter_Chat_FullMethodName || stream.Shape() != materpc.BidiStream {
					t.Errorf("req is %T %v", req, req)
				}
				note("before")
				reply, err := next(context.WithValue(ctx, streamKey{}, "from middleware"), req)
				note("after")
				if reply != nil {
					t.Errorf("reply %v, want nil", reply)
				}
				return reply, err
			}
		}
		greeter := &fakeGreeter{}
		f := startServer(t, greeter, grpc.StreamMiddleware(outer))
		defer f.close()
		greeter.chat = func(stream stdgrpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]) error {
			if v := stream.Context().Value(streamKey{}); v != "from middleware" {
				t.Errorf("the handler's ctx has %v", v)
			}
			if got := grpc.GetStream(stream.Context()); got == nil || got.Context() != stream.Context() {
				t.Errorf("GetStream = %v", got)
			}
			note("handler")
			for {
				if _, err := stream.Recv(); errors.Is(err, io.EOF) {
					return nil
				}
				if err := stream.Send(&hellov1.ChatResponse{}); err != nil {
					return err
				}
			}
		}
		chat := openChat(t, t.Context(), f.client())
		if err := chat.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := chat.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("stream ends with %v", err)
		}
		synctest.Wait()
		if diff := cmp.Diff([]string{"before", "handler", "after"}, seen); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

// countingStream is a stream that a middleware puts around another.
type countingStream struct {
	stdgrpc.ServerStream
	sent *int
}

func (s countingStream) SendMsg(m any) error {
	*s.sent++
	return s.ServerStream.SendMsg(m)
}

func TestStreamMiddlewareMayReplaceTheStream(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		sent := 0
		wrap := func(next kmiddleware.Handler) kmiddleware.Handler {
			return func(ctx context.Context, req any) (any, error) {
				ss, _ := req.(stdgrpc.ServerStream)
				return next(ctx, countingStream{ss, &sent})
			}
		}
		f := startServer(t, &fakeGreeter{}, grpc.StreamMiddleware(wrap))
		defer f.close()
		if n, err := listOne(t, t.Context(), f.client()); n != 1 || !errors.Is(err, io.EOF) || sent != 1 {
			t.Errorf("%d messages, %v; the wrapper saw %d", n, err, sent)
		}
	})
}

func TestStartWarnsOfStreamsWithoutMiddleware(t *testing.T) {
	pass := func(next kmiddleware.Handler) kmiddleware.Handler { return next }
	for name, tt := range map[string]struct {
		opts []grpc.ServerOption
		want int
	}{
		"unary only":  {[]grpc.ServerOption{grpc.Middleware(pass)}, 1},
		"both":        {[]grpc.ServerOption{grpc.Middleware(pass), grpc.StreamMiddleware(pass)}, 0},
		"neither":     {nil, 0},
		"stream only": {[]grpc.ServerOption{grpc.StreamMiddleware(pass)}, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				log := &fakeLog{}
				startServer(t, &fakeGreeter{}, append(tt.opts, grpc.Logger(log))...).close()
				lines := log.all()
				if len(lines) != tt.want {
					t.Fatalf("%d warnings %v, want %d", len(lines), lines, tt.want)
				}
				want := []string{hellov1.Greeter_Chat_FullMethodName, hellov1.Greeter_CollectNames_FullMethodName, hellov1.Greeter_ListHellos_FullMethodName}
				if tt.want == 1 && !cmp.Equal(lines[0]["methods"], want) {
					t.Errorf("methods %v, want %v", lines[0]["methods"], want)
				}
			})
		})
	}
}
