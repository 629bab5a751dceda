package grpc_test

import (
	"context"
	"errors"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

func TestParseTarget(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][4]string{
		"discovery:///greeter":               {"discovery", "greeter", "greeter", "discovery:///greeter"},
		"discovery:///team/greeter":          {"discovery", "team/greeter", "team%2Fgreeter", "discovery:///team/greeter"},
		"direct:///10.0.0.1:9,10.0.0.2:9":    {"direct", "10.0.0.1:9,10.0.0.2:9", "10.0.0.1:9", "direct:///10.0.0.1:9,10.0.0.2:9"},
		"direct:///[::1]:9":                  {"direct", "[::1]:9", "[::1]:9", "direct:///[::1]:9"},
		"direct:///[fe80::1%25eth0]:9":       {"direct", "[fe80::1%eth0]:9", "[fe80::1%eth0]:9", "direct:///[fe80::1%25eth0]:9"},
		"static:///10.0.0.1:9?weight=5,b:9":  {"static", "10.0.0.1:9?weight=5,b:9", "10.0.0.1:9", "static:///10.0.0.1:9?weight=5,b:9"},
		"static:///grpcs://[::1]:9":          {"static", "grpcs://[::1]:9", "[::1]:9", "static:///grpcs://[::1]:9"},
		"dns+srv:///orders.example.org":      {"dns+srv", "orders.example.org", "orders.example.org", "dns+srv:///orders.example.org"},
		"passthrough:///bufconn":             {"passthrough", "bufconn", "bufconn", "passthrough:///bufconn"},
		"dns:///example.org:443":             {"dns", "example.org:443", "example.org:443", "dns:///example.org:443"},
		"dns:example.org:443":                {"dns", "example.org:443", "example.org:443", "dns:example.org:443"},
		"dns://8.8.8.8/example.org:443":      {"dns", "example.org:443", "example.org:443", "dns://8.8.8.8/example.org:443"},
		"localhost:9000":                     {"dns", "localhost:9000", "localhost:9000", "dns:///localhost:9000"},
		"127.0.0.1:9000":                     {"dns", "127.0.0.1:9000", "127.0.0.1:9000", "dns:///127.0.0.1:9000"},
		"[::1]:9000":                         {"dns", "[::1]:9000", "[::1]:9000", "dns:///[::1]:9000"},
		"example.org":                        {"dns", "example.org", "example.org", "dns:///example.org"},
		"unix:/run/greeter.sock":             {"unix", "/run/greeter.sock", "localhost", "unix:/run/greeter.sock"},
		"unix:///run/greeter.sock":           {"unix", "/run/greeter.sock", "localhost", "unix:///run/greeter.sock"},
		"unix:greeter.sock":                  {"unix", "greeter.sock", "localhost", "unix:greeter.sock"},
		"unix-abstract:greeter":              {"unix-abstract", "greeter", "localhost", "unix-abstract:greeter"},
		"direct:///svc.local:9000,[::1]:123": {"direct", "svc.local:9000,[::1]:123", "svc.local:9000", "direct:///svc.local:9000,[::1]:123"},
	} {
		scheme, name, authority, grpcText, err := grpc.ParseTarget(text)
		if got := [4]string{scheme, name, authority, grpcText}; err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", text, got, err, want)
		}
	}
	for text, hint := range map[string]string{
		"":                           "is empty",
		"xds:///greeter":             "xds",
		"zk:///greeter":              `scheme "zk" is unknown`,
		"discovery://greeter":        "discovery:///greeter",
		"discovery:///":              "names nothing",
		"direct:///":                 "names nothing",
		"direct:///10.0.0.1":         "missing port",
		"direct:///10.0.0.1:9,":      "missing port",
		"direct:///:9":               "host or port is missing",
		"direct:///a,b:0,c:99999":    "address c:99999: port",
		"direct:///a:1,b,c:d":        "address b: missing port",
		"localhost:":                 "behind the colon",
		"static:///a:9?weight=-1":    "weight",
		"static:///a:9?wait=1":       "wait",
		"static:///a":                "port",
		"direct:///2001:db8::1:9000": "too many colons",
		"2001:db8::1:9000":           "too many colons",
		"direct:///[fe80::1%eth0]:9": "invalid URL escape",
	} {
		_, _, _, _, err := grpc.ParseTarget(text)
		if err == nil || !strings.Contains(err.Error(), hint) || !strings.Contains(err.Error(), text) {
			t.Errorf("%q: %v; want the target and %q in it", text, err, hint)
		}
	}
}

func FuzzParseTarget(f *testing.F) {
	for _, seed := range []string{"discovery:///greeter", "direct:///[::1]:9", "localhost:9", "unix:x", "a:b:c"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, text string) {
		scheme, name, _, grpcText, err := grpc.ParseTarget(text)
		if err == nil && (scheme == "" || name == "" || grpcText == "") {
			t.Errorf("%q: %q %q %q without an error", text, scheme, name, grpcText)
		}
	})
}

// All faults at once, each naming what to write instead.
func TestNewClientReportsAllFaults(t *testing.T) {
	t.Parallel()
	_, err := grpc.NewClient("discovery:///greeter", grpc.WithTimeout(-1), grpc.WithSubset(-1), grpc.WithDrainGrace(-1),
		grpc.WithCloseWait(-1), grpc.WithConnectTimeout(0), grpc.WithStrategy(nil), grpc.WithCredentials(nil),
		grpc.WithDiscovery((*memory.Registry)(nil)), grpc.WithEndpoint("direct:///a:1"))
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{
		"WithTimeout(", "WithSubset(-1)", "WithDrainGrace(", "WithCloseWait(", "WithConnectTimeout(0s)", "WithStrategy(nil)", "WithCredentials(nil)", "WithDiscovery:", "WithEndpoint(",
		"there are no credentials", "the registry is nil",
	} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%v\ndoes not name %s", err, want)
		}
	}
}

func TestNewClientNeedsCredentials(t *testing.T) {
	t.Parallel()
	if _, err := grpc.NewClient("direct:///a:1"); err == nil || !strings.Contains(err.Error(), "WithInsecure") {
		t.Errorf("%v", err)
	}
	conn, err := grpc.NewClient("direct:///a:1", grpc.WithOptions(stdgrpc.WithTransportCredentials(insecure.NewCredentials())))
	if err != nil {
		t.Fatal(err)
	}
	_ = conn.Close()
	for name, dial := range map[string]func(context.Context, ...grpc.ClientOption) (*stdgrpc.ClientConn, error){
		"Dial": grpc.Dial, "DialInsecure": grpc.DialInsecure,
	} {
		conn, err := dial(t.Context(), grpc.WithEndpoint("direct:///a:1"))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		_ = conn.Close()
	}
	if _, err := grpc.DialInsecure(t.Context()); err == nil {
		t.Error("DialInsecure without an endpoint succeeded")
	}
}

// What a user's options cannot take away.
func TestUsersOptionsDoNotReplaceOurs(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	n.raw("a:1", answer("a"))
	outside := 0
	c := n.client("direct:///a:1", grpc.WithOptions(
		stdgrpc.WithDefaultServiceConfig(`{"loadBalancingConfig":[{"pick_first":{}}]}`), stdgrpc.WithIdleTimeout(time.Nanosecond),
		stdgrpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
			if method == hellov1.Greeter_SayHello_FullMethodName {
				outside++
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		})))
	if _, err := c.say(t.Context()); err != nil || outside != 1 {
		t.Fatalf("%v, %d runs", err, outside)
	}
	if len(grpc.FleetView(c.conn)) != 1 || len(c.events.of(materpc.Ungoverned)) != 0 {
		t.Error("our balancer is not in force")
	}
}

func TestUnixTarget(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "s")
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "unix", path)
	if err != nil {
		t.Fatal(err)
	}
	startRaw(t, l, answer("unix"))
	c := dialClient(t, "unix:"+path)
	if server, err := c.say(t.Context()); err != nil || server != "unix" {
		t.Fatalf("%q, %v", server, err)
	}
}

// Middlewares run once a call, attempt interceptors once a try; a middleware
// that replaces the ctx is told so.
func TestLayersRunAsOftenAsTheySay(t *testing.T) {
	t.Parallel()
	n := newNet(t)
	n.raw("a:1", refusing("draining", ""))
	n.raw("b:1", answer("b"))
	var calls, tries, interceptors int
	c := n.client("direct:///a:1,b:1", ordered,
		grpc.WithMiddleware(func(next middleware.Handler) middleware.Handler {
			return func(ctx context.Context, req any) (any, error) {
				calls++
				reply, err := next(ctx, req)
				if hello, ok := reply.(*hellov1.SayHelloResponse); !ok || hello.GetServer() != "b" {
					t.Errorf("reply %v, %v", reply, err)
				}
				return reply, err
			}
		}),
		grpc.WithCallInterceptor(func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
			interceptors++
			return invoker(ctx, method, req, reply, cc, opts...)
		}),
		grpc.WithUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
			tries++
			return invoker(ctx, method, req, reply, cc, opts...)
		}))
	c.awaitReady(t, 2)
	if _, err := c.say(t.Context()); err != nil || calls != 1 || interceptors != 1 || tries != 2 {
		t.Errorf("%v: %d middleware runs, %d interceptor runs, %d tries; want 1, 1, 2", err, calls, interceptors, tries)
	}
	lost := n.client("direct:///b:1", grpc.WithMiddleware(func(next middleware.Handler) middleware.Handler {
		return func(_ context.Context, req any) (any, error) { return next(context.Background(), req) }
	}))
	_, err := lost.say(t.Context())
	wantErr(t, err, codes.Internal, materpc.Local)
	stuck := errors.New("no")
	refused := n.client("direct:///b:1", grpc.WithMiddleware(func(middleware.Handler) middleware.Handler {
		return func(context.Context, any) (any, error) { return nil, stuck }
	}))
	if _, err := refused.say(t.Context()); !errors.Is(err, stuck) || len(refused.finished()) != 1 {
		t.Errorf("%v, finished %d times", err, len(refused.finished()))
	}
}
