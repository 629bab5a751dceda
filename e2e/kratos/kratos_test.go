package kratos_test

import (
	"context"
	"fmt"
	"strings"
	"testing"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/metadata"
	"github.com/go-kratos/kratos/v2/middleware"
	"github.com/go-kratos/kratos/v2/middleware/auth/jwt"
	"github.com/go-kratos/kratos/v2/middleware/circuitbreaker"
	"github.com/go-kratos/kratos/v2/middleware/logging"
	kmetadata "github.com/go-kratos/kratos/v2/middleware/metadata"
	"github.com/go-kratos/kratos/v2/middleware/ratelimit"
	"github.com/go-kratos/kratos/v2/middleware/recovery"
	"github.com/go-kratos/kratos/v2/middleware/tracing"
	"github.com/go-kratos/kratos/v2/middleware/validate"
	"github.com/go-kratos/kratos/v2/transport"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	jwtv5 "github.com/golang-jwt/jwt/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// reportingGreeter answers with what Kratos's middlewares brought along.
type reportingGreeter struct {
	hellov1.UnimplementedGreeterServer
}

func (reportingGreeter) SayHello(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	tr, _ := transport.FromServerContext(ctx)
	md, _ := metadata.FromServerContext(ctx)
	claims, _ := jwt.FromContext(ctx)
	subject := ""
	if claims != nil {
		subject, _ = claims.GetSubject()
	}
	text := fmt.Sprintf("tenant=%s subject=%s traced=%t operation=%s", md.Get("x-md-global-tenant"), subject,
		strings.HasPrefix(tr.RequestHeader().Get("traceparent"), "00-"), tr.Operation())
	return &hellov1.SayHelloResponse{Message: text}, nil
}

var key = []byte("a key for tests")

func keyFunc(*jwtv5.Token) (any, error) { return key, nil }

func serverSide(traces *sdktrace.TracerProvider) []middleware.Middleware {
	return []middleware.Middleware{
		recovery.Recovery(), tracing.Server(tracing.WithTracerProvider(traces)), logging.Server(log.NewFilter(log.DefaultLogger, log.FilterLevel(log.LevelFatal))),
		kmetadata.Server(), ratelimit.Server(), jwt.Server(keyFunc), validate.Validator(), //nolint:staticcheck // deprecated, but in use
	}
}

func clientSide(traces *sdktrace.TracerProvider) []middleware.Middleware {
	return []middleware.Middleware{
		recovery.Recovery(), tracing.Client(tracing.WithTracerProvider(traces)), logging.Client(log.NewFilter(log.DefaultLogger, log.FilterLevel(log.LevelFatal))),
		kmetadata.Client(), circuitbreaker.Client(),
		jwt.Client(keyFunc, jwt.WithClaims(func() jwtv5.Claims { return jwtv5.RegisteredClaims{Subject: "ada"} })),
	}
}

// start runs an app until the test ends.
func start(t *testing.T, run, stop func() error) {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- run() }()
	t.Cleanup(func() {
		if err := stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestEitherSide calls from each client to each server, both registered in our
// registry, Kratos's client balanced by our selector, all four with Kratos's
// middlewares.
func TestEitherSide(t *testing.T) {
	traces := sdktrace.NewTracerProvider()
	t.Cleanup(func() { _ = traces.Shutdown(context.WithoutCancel(t.Context())) })
	reg := memory.New()

	ours := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.Middleware(serverSide(traces)...))
	hellov1.RegisterGreeterServer(ours, reportingGreeter{})
	a := app.New(app.Name("ours"), app.Server(ours), app.Registrar(reg), app.PropagationWindow(0), app.Signal())
	start(t, a.Run, a.Stop)

	theirs := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"), kgrpc.Middleware(serverSide(traces)...))
	hellov1.RegisterGreeterServer(theirs, reportingGreeter{})
	k := kratos.New(kratos.Name("theirs"), kratos.Server(theirs), kratos.Registrar(reg))
	start(t, k.Run, k.Stop)

	for _, service := range []string{"ours", "theirs"} {
		for name, dial := range map[string]func() (*stdgrpc.ClientConn, error){
			"our client": func() (*stdgrpc.ClientConn, error) {
				return grpc.NewClient("discovery:///"+service, grpc.WithDiscovery(reg), grpc.WithInsecure(), grpc.WithMiddleware(clientSide(traces)...))
			},
			"their client": func() (*stdgrpc.ClientConn, error) {
				return kgrpc.DialInsecure(t.Context(), kgrpc.WithEndpoint("discovery:///"+service), kgrpc.WithDiscovery(reg),
					kgrpc.WithMiddleware(clientSide(traces)...), kgrpc.WithPrintDiscoveryDebugLog(false), kgrpc.WithTimeout(10*time.Second))
			},
		} {
			t.Run(name+" to "+service, func(t *testing.T) {
				conn, err := dial()
				if err != nil {
					t.Fatal(err)
				}
				defer func() { _ = conn.Close() }()
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
				defer cancel()
				ctx = metadata.AppendToClientContext(ctx, "x-md-global-tenant", "acme")
				reply, err := hellov1.NewGreeterClient(conn).SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"}, stdgrpc.WaitForReady(true))
				want := "tenant=acme subject=ada traced=true operation=/hello.v1.Greeter/SayHello"
				if err != nil || reply.GetMessage() != want {
					t.Errorf("%q, %v; want %q", reply.GetMessage(), err, want)
				}
			})
		}
	}
}

// TestMiddlewaresCoverStreams: with StreamMiddleware the same middlewares run
// once around a stream.
func TestMiddlewaresCoverStreams(t *testing.T) {
	t.Parallel()
	traces := sdktrace.NewTracerProvider()
	server := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.StreamMiddleware(recovery.Recovery(), tracing.Server(tracing.WithTracerProvider(traces)),
		kmetadata.Server(), ratelimit.Server(), jwt.Server(keyFunc)))
	hellov1.RegisterGreeterServer(server, greeter.New("hello-1"))
	k := kratos.New(kratos.Name("hello"), kratos.Server(server))
	start(t, k.Run, k.Stop)
	<-server.Ready()
	endpoint, err := server.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	list := func(opts ...grpc.ClientOption) error {
		conn, err := grpc.NewClient("direct:///"+endpoint.Host, append(opts, grpc.WithInsecure())...)
		if err != nil {
			return err
		}
		defer func() { _ = conn.Close() }()
		stream, err := hellov1.NewGreeterClient(conn).ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada", Count: 1})
		if err != nil {
			return err
		}
		_, err = stream.Recv()
		return err
	}
	if err := list(); err == nil || !strings.Contains(err.Error(), "JWT") {
		t.Errorf("a stream without a token: %v, want Kratos's refusal", err)
	}
	token := jwt.Client(keyFunc)
	if err := list(grpc.WithStreamMiddleware(token)); err != nil {
		t.Errorf("a stream with a token: %v", err)
	}
}
