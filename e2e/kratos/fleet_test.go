package kratos_test

import (
	"context"
	"errors"
	"io"
	"strings"
	"testing"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	kerrors "github.com/go-kratos/kratos/v2/errors"
	"github.com/go-kratos/kratos/v2/metadata"
	"github.com/go-kratos/kratos/v2/middleware"
	"github.com/go-kratos/kratos/v2/middleware/auth/jwt"
	mselector "github.com/go-kratos/kratos/v2/middleware/selector"
	"github.com/go-kratos/kratos/v2/transport"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	jwtv5 "github.com/golang-jwt/jwt/v5"
	sdktrace "go.opentelemetry.io/otel/sdk/trace"
	stdgrpc "google.golang.org/grpc"
	stdmetadata "google.golang.org/grpc/metadata"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// sight is what one handler saw of its call.
type sight struct {
	Operation string
	Tenant    string // of the header that Kratos's metadata middleware propagates
	Plain     string // of a header that no middleware knows
	Subject   string // of the token, if the middleware's ctx is the handler's
	Traced    bool

	bounded  bool // by a deadline
	left     time.Duration
	deadline time.Time
}

// The names with a meaning to a witness.
const (
	failing = "fail" // answers with a Kratos error
	waiting = "wait" // answers when its ctx has ended
)

// errUnknownName has all that a Kratos error can carry.
func errUnknownName() *kerrors.Error {
	return kerrors.NotFound("NAME_UNKNOWN", "nobody has this name").WithMetadata(map[string]string{"name": failing, "hint": "ask ada"})
}

// witness serves all four shapes and tells what arrived: one sight when a call
// has its first message, one error on ended when a waiting handler's ctx ends.
type witness struct {
	hellov1.UnimplementedGreeterServer
	id    string
	seen  chan sight
	ended chan error
}

func newWitness(id string) *witness {
	return &witness{id: id, seen: make(chan sight, 16), ended: make(chan error, 16)}
}

// answer tells what the handler saw, sets reply metadata, and does what the name asks for.
func (w *witness) answer(ctx context.Context, name string) error {
	s := sight{}
	tr, ok := transport.FromServerContext(ctx)
	if !ok {
		return errors.New("no transport in the handler's ctx")
	}
	header := tr.RequestHeader()
	s.Operation, s.Tenant, s.Plain = tr.Operation(), header.Get("x-md-global-tenant"), header.Get("x-plain")
	s.Traced = strings.HasPrefix(header.Get("traceparent"), "00-")
	if claims, ok := jwt.FromContext(ctx); ok {
		s.Subject, _ = claims.GetSubject()
	}
	if s.deadline, s.bounded = ctx.Deadline(); s.bounded {
		s.left = time.Until(s.deadline)
	}
	w.seen <- s
	tr.ReplyHeader().Set("x-reply", "through the transport")
	if err := stdgrpc.SetHeader(ctx, stdmetadata.Pairs("x-header", "one", "x-header", "two")); err != nil {
		return err
	}
	if err := stdgrpc.SetTrailer(ctx, stdmetadata.Pairs("x-trailer", "last")); err != nil {
		return err
	}
	switch name {
	case failing:
		return errUnknownName()
	case waiting:
		<-ctx.Done()
		w.ended <- ctx.Err()
		return ctx.Err()
	default:
		return nil
	}
}

func (w *witness) SayHello(ctx context.Context, in *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	if err := w.answer(ctx, in.GetName()); err != nil {
		return nil, err
	}
	return &hellov1.SayHelloResponse{Message: in.GetName(), Server: w.id}, nil
}

func (w *witness) ListHellos(in *hellov1.ListHellosRequest, stream stdgrpc.ServerStreamingServer[hellov1.ListHellosResponse]) error {
	if err := w.answer(stream.Context(), in.GetName()); err != nil {
		return err
	}
	for range in.GetCount() {
		if err := stream.Send(&hellov1.ListHellosResponse{Message: in.GetName(), Server: w.id}); err != nil {
			return err
		}
	}
	return nil
}

func (w *witness) CollectNames(stream stdgrpc.ClientStreamingServer[hellov1.CollectNamesRequest, hellov1.CollectNamesResponse]) error {
	var names []string
	for {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return stream.SendAndClose(&hellov1.CollectNamesResponse{Message: strings.Join(names, " "), Server: w.id})
		}
		if err != nil {
			return err
		}
		if names = append(names, in.GetName()); len(names) == 1 {
			if err := w.answer(stream.Context(), in.GetName()); err != nil {
				return err
			}
		}
	}
}

func (w *witness) Chat(stream stdgrpc.BidiStreamingServer[hellov1.ChatRequest, hellov1.ChatResponse]) error {
	for first := true; ; first = false {
		in, err := stream.Recv()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if first {
			if err := w.answer(stream.Context(), in.GetName()); err != nil {
				return err
			}
		}
		if err := stream.Send(&hellov1.ChatResponse{Message: in.GetName(), Server: w.id}); err != nil {
			return err
		}
	}
}

// streamSide is serverSide for streams. Kratos's clients watch the health of
// their servers, without a token: that stream is spared.
func streamSide(traces *sdktrace.TracerProvider) []middleware.Middleware {
	return []middleware.Middleware{mselector.Server(serverSide(traces)...).Match(func(_ context.Context, operation string) bool {
		return !strings.HasPrefix(operation, "/grpc.health.v1.")
	}).Build()}
}

// direction is a client of one side before a server of the other.
type direction struct {
	name   string
	ours   bool // the client is ours, the server Kratos's
	server *witness
	client hellov1.GreeterClient
}

// newDirections starts one server of each side, both with Kratos's middlewares
// around both kinds of calls and in one registry of ours, and dials each with
// the other side's client.
func newDirections(t *testing.T) []direction {
	t.Helper()
	traces := sdktrace.NewTracerProvider()
	t.Cleanup(func() { _ = traces.Shutdown(context.WithoutCancel(t.Context())) })
	reg := memory.New()

	ours := newWitness("ours")
	ourServer := grpc.NewServer(grpc.Address("127.0.0.1:0"), grpc.Middleware(serverSide(traces)...), grpc.StreamMiddleware(streamSide(traces)...))
	hellov1.RegisterGreeterServer(ourServer, ours)
	a := app.New(app.Name("ours"), app.Server(ourServer), app.Registrar(reg), app.PropagationWindow(0), app.Signal(), app.Slog(nil))
	start(t, a.Run, a.Stop)

	theirs := newWitness("theirs")
	theirServer := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"), kgrpc.Timeout(0), kgrpc.Middleware(serverSide(traces)...), kgrpc.StreamMiddleware(streamSide(traces)...))
	hellov1.RegisterGreeterServer(theirServer, theirs)
	k := kratos.New(kratos.Name("theirs"), kratos.Server(theirServer), kratos.Registrar(reg))
	start(t, k.Run, k.Stop)

	ourConn, err := grpc.NewClient("discovery:///theirs", grpc.WithDiscovery(reg), grpc.WithInsecure(),
		grpc.WithMiddleware(clientSide(traces)...), grpc.WithStreamMiddleware(clientSide(traces)...))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = ourConn.Close() })
	theirConn, err := kgrpc.DialInsecure(t.Context(), kgrpc.WithEndpoint("discovery:///ours"), kgrpc.WithDiscovery(reg), kgrpc.WithTimeout(10*time.Second),
		kgrpc.WithMiddleware(clientSide(traces)...), kgrpc.WithStreamMiddleware(clientSide(traces)...), kgrpc.WithPrintDiscoveryDebugLog(false))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = theirConn.Close() })
	return []direction{
		{name: "our client, Kratos server", ours: true, server: theirs, client: hellov1.NewGreeterClient(ourConn)},
		{name: "Kratos client, our server", server: ours, client: hellov1.NewGreeterClient(theirConn)},
	}
}

// context returns the ctx of a call. Kratos's stream middlewares run per
// message, when the header has left: what they would add is added here.
func (d direction) context(t *testing.T, s shape) context.Context {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context()) // no deadline: it would reach the handler
	t.Cleanup(cancel)
	guard := time.AfterFunc(10*time.Second, cancel)
	t.Cleanup(func() { guard.Stop() })
	ctx = metadata.AppendToClientContext(ctx, "x-md-global-tenant", "acme")
	ctx = stdmetadata.AppendToOutgoingContext(ctx, "x-plain", "kept")
	if d.ours || s.unary {
		return ctx
	}
	token, err := jwtv5.NewWithClaims(jwtv5.SigningMethodHS256, jwtv5.RegisteredClaims{Subject: "ada"}).SignedString(key)
	if err != nil {
		t.Fatal(err)
	}
	return stdmetadata.AppendToOutgoingContext(ctx, "x-md-global-tenant", "acme", "authorization", "Bearer "+token)
}

// call calls once and requires that the handler saw it.
func (d direction) call(ctx context.Context, t *testing.T, s shape, name string) (reply, sight) {
	t.Helper()
	got := s.call(ctx, d.client, name)
	select {
	case seen := <-d.server.seen:
		return got, seen
	default:
		t.Fatalf("the handler was not called: %v", got.err)
		return got, sight{}
	}
}

// each runs a test for both directions and all four shapes.
func each(t *testing.T, run func(t *testing.T, d direction, s shape)) {
	t.Helper()
	for _, d := range newDirections(t) {
		for _, s := range shapes {
			t.Run(d.name+", "+s.name, func(t *testing.T) { run(t, d, s) })
		}
	}
}
