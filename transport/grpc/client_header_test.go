package grpc_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	ktransport "github.com/go-kratos/kratos/v2/transport"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// Layers that put something between the call and its tries.
var (
	setHeader = grpc.WithMiddleware(func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			if tr, ok := ktransport.FromClientContext(ctx); ok {
				tr.RequestHeader().Set("from-middleware", "m")
			}
			return next(ctx, req)
		}
	})
	derive = grpc.WithMiddleware(func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			return next(metadata.AppendToOutgoingContext(ctx, "derived", "d"), req)
		}
	})
	twice = grpc.WithCallInterceptor(func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
		if err := invoker(ctx, method, req, reply, cc, opts...); err == nil {
			return nil
		}
		ctx, cancel := context.WithTimeout(ctx, time.Minute)
		defer cancel()
		return invoker(ctx, method, req, reply, cc, opts...)
	})
)

// Every try of every call carries our header, the caller's metadata and what
// middlewares wrote, whatever contexts lie in between.
func TestEveryTryCarriesTheHeader(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		opts   []grpc.ClientOption
		caller []string
		want   map[string]string
	}{
		"plain":                               {nil, nil, nil},
		"caller's metadata":                   {nil, []string{"mine", "1"}, map[string]string{"mine": "1"}},
		"timeout":                             {[]grpc.ClientOption{grpc.WithTimeout(time.Minute)}, nil, nil},
		"timeout and caller's metadata":       {[]grpc.ClientOption{grpc.WithTimeout(time.Minute)}, []string{"mine", "1"}, map[string]string{"mine": "1"}},
		"middleware's header":                 {[]grpc.ClientOption{setHeader}, []string{"mine", "1"}, map[string]string{"mine": "1", "from-middleware": "m"}},
		"derived ctx":                         {[]grpc.ClientOption{derive}, []string{"mine", "1"}, map[string]string{"mine": "1", "derived": "d"}},
		"all":                                 {[]grpc.ClientOption{derive, setHeader, grpc.WithTimeout(time.Minute)}, []string{"mine", "1"}, map[string]string{"mine": "1", "derived": "d", "from-middleware": "m"}},
		"an interceptor that calls on, twice": {[]grpc.ClientOption{twice}, []string{"mine", "1"}, map[string]string{"mine": "1"}},
		"relayed header of another":           {nil, []string{wire.HeaderKey, "1;other;0000"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				var mu sync.Mutex
				var seen []map[string][]string
				note := func(next func(*rawStream)) func(*rawStream) {
					return func(s *rawStream) {
						mu.Lock()
						seen = append(seen, s.header)
						mu.Unlock()
						next(s)
					}
				}
				n.raw("a:1", note(refusing(wire.Draining, "")))
				n.raw("b:1", note(func(s *rawStream) {
					if name == "an interceptor that calls on, twice" && s.ordinal == 1 {
						s.fail(codes.Internal, "once more")
						return
					}
					answer("b")(s)
				}))
				c := n.client("direct:///a:1,b:1", append([]grpc.ClientOption{ordered, grpc.WithName("orders")}, test.opts...)...)
				c.awaitReady(t, 2)
				ctx := metadata.AppendToOutgoingContext(t.Context(), test.caller...)
				if _, err := c.say(ctx); err != nil {
					t.Fatal(err)
				}
				if len(seen) < 2 {
					t.Fatalf("%d tries", len(seen))
				}
				for i, header := range seen {
					values := header[wire.HeaderKey]
					if len(values) == 0 {
						t.Fatalf("try %d: no header", i)
					}
					h, ok := wire.ParseHeader(values[len(values)-1])
					if !ok || h.Nonce != grpc.Nonce(c.conn) || h.Caller != "orders" {
						t.Errorf("try %d: header %q", i, values)
					}
					for key, want := range test.want {
						if !slices.Equal(header[key], []string{want}) {
							t.Errorf("try %d: %s is %q, want %q once", i, key, header[key], want)
						}
					}
				}
			})
		})
	}
}

// One connection object is one nonce, and no two share one.
func TestNonceBelongsToTheConnection(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	first, second := n.client("direct:///a:1"), n.client("direct:///a:1")
	if a, b := grpc.Nonce(first.conn), grpc.Nonce(second.conn); a == b || len(a) < 16 {
		t.Errorf("nonces %q and %q", a, b)
	}
}

// A call is told once, whole: start, finish, with tracers around it; their
// panics end nothing.
func TestInvariant05CallIsToldOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", answer("a"))
		tracer := &countingTracer{}
		c := n.client("direct:///a:1", grpc.WithTracer(tracer, brokenTracer{}), grpc.WithEvents(func(materpc.Event) { panic("handler") }))
		if _, err := c.say(t.Context(), stdgrpc.OnFinish(func(error) { panic("OnFinish") })); err != nil {
			t.Fatal(err)
		}
		got := c.events.types(hellov1.Greeter_SayHello_FullMethodName)
		if !slices.Equal(got, []materpc.EventType{materpc.RPCStart, materpc.RPCFinish}) || tracer.started != 1 || tracer.finished != 1 {
			t.Errorf("events %v, tracer %+v", got, tracer)
		}
	})
}

type countingTracer struct{ started, finished int }

func (f *countingTracer) Start(ctx context.Context) context.Context { f.started++; return ctx }
func (f *countingTracer) Finish(context.Context)                    { f.finished++ }

type brokenTracer struct{}

func (brokenTracer) Start(context.Context) context.Context { panic("start") }
func (brokenTracer) Finish(context.Context)                { panic("finish") }

// A middleware that panics ends its call, and leaves nothing in flight.
func TestPanickingMiddleware(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", answer("a"))
		c := n.client("direct:///a:1", grpc.WithMiddleware(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, req any) (any, error) {
				_, _ = next(ctx, req)
				panic("middleware")
			}
		}))
		func() {
			defer func() {
				if r := recover(); r != "middleware" {
					t.Errorf("recovered %v: the panic is the caller's to see", r)
				}
			}()
			_, _ = c.say(t.Context())
		}()
		if got := c.finished(); len(got) != 1 || c.inFlight() != 0 {
			t.Errorf("%d finishes, %d in flight", len(got), c.inFlight())
		}
		if err := grpc.Close(t.Context(), c.conn); err != nil {
			t.Error(err)
		}
	})
}
