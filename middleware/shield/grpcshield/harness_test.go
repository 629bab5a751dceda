package grpcshield_test

import (
	"context"
	"errors"
	"io"
	"net"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

const (
	ms   = time.Millisecond
	hour = time.Hour

	unaryMethod  = "/test.Echo/Unary"
	serverMethod = "/test.Echo/Server"
	clientMethod = "/test.Echo/Client"
	bidiMethod   = "/test.Echo/Bidi"
)

var (
	serverDesc = &grpc.StreamDesc{StreamName: "Server", ServerStreams: true}
	clientDesc = &grpc.StreamDesc{StreamName: "Client", ClientStreams: true}
	bidiDesc   = &grpc.StreamDesc{StreamName: "Bidi", ServerStreams: true, ClientStreams: true}

	errDown   = status.Error(codes.Unavailable, "down")
	errFatal  = status.Error(codes.InvalidArgument, "no such thing")
	at        = shield.Constant
	transient = shield.On(grpcshield.Transient)
)

// act is what the server does with one call. Header and trailer "x-node" are the
// number of the call, or node.
type act struct {
	header  time.Duration // when headers are sent by themselves, 0 for never
	takes   time.Duration // until the first item, or the end
	gap     time.Duration // from item to item, and to the end
	items   []string      // of a stream; a unary reply is the number of the call
	node    string
	trailer metadata.MD
	err     error
}

// backend is a server that does what its acts say, call by call; the last act
// repeats. It speaks all four shapes: clients send strings.
type backend struct {
	acts  []act
	calls atomic.Int32
	// cancelled counts handlers whose ctx ended under them.
	cancelled atomic.Int32
	done      atomic.Int32

	mu        sync.Mutex
	got       []string // all requests, in their order
	metadata  []metadata.MD
	deadlines []time.Time
}

func (b *backend) begin(ctx context.Context) (act, string) {
	n := int(b.calls.Add(1))
	a := b.acts[min(n, len(b.acts))-1]
	b.mu.Lock()
	defer b.mu.Unlock()
	md, _ := metadata.FromIncomingContext(ctx)
	b.metadata = append(b.metadata, md)
	deadline, _ := ctx.Deadline()
	b.deadlines = append(b.deadlines, deadline)
	if a.node == "" {
		a.node = strconv.Itoa(n)
	}
	return a, strconv.Itoa(n)
}

func (b *backend) note(text string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.got = append(b.got, text)
}

func (b *backend) requests() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return append([]string(nil), b.got...)
}

// pause waits as an act says, or until the call is cancelled.
func (b *backend) pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		b.cancelled.Add(1)
		return status.FromContextError(ctx.Err()).Err()
	}
}

func (b *backend) metadataOf(a act) (header, trailer metadata.MD) {
	if a.node == "-" { // the answer is a trailer alone, which the channel's retries want
		return nil, a.trailer
	}
	return metadata.Pairs("x-node", a.node), metadata.Join(metadata.Pairs("x-node", a.node), a.trailer)
}

func (b *backend) unary(ctx context.Context, req string) (string, error) {
	defer b.done.Add(1)
	a, n := b.begin(ctx)
	b.note(req)
	header, trailer := b.metadataOf(a)
	_ = grpc.SetTrailer(ctx, trailer)
	if a.header > 0 {
		if err := b.pause(ctx, a.header); err != nil {
			return "", err
		}
		_ = grpc.SendHeader(ctx, header)
	} else {
		_ = grpc.SetHeader(ctx, header)
	}
	if err := b.pause(ctx, a.takes); err != nil {
		return "", err
	}
	return n, a.err
}

func (b *backend) stream(stream grpc.ServerStream, echoes bool) error {
	defer b.done.Add(1)
	ctx := stream.Context()
	a, _ := b.begin(ctx)
	header, trailer := b.metadataOf(a)
	stream.SetTrailer(trailer)
	if a.header > 0 {
		if err := b.pause(ctx, a.header); err != nil {
			return err
		}
		_ = stream.SendHeader(header)
	} else {
		_ = stream.SetHeader(header)
	}
	if err := b.pause(ctx, a.takes); err != nil {
		return err
	}
	for i, item := range a.items {
		if i > 0 {
			if err := b.pause(ctx, a.gap); err != nil {
				return err
			}
		}
		if err := stream.SendMsg(wrapperspb.String(item)); err != nil {
			b.cancelled.Add(1)
			return err
		}
	}
	if echoes {
		if err := b.echo(stream); err != nil {
			return err
		}
	}
	if len(a.items) > 0 {
		if err := b.pause(ctx, a.gap); err != nil {
			return err
		}
	}
	return a.err
}

// echo answers each message until the client is done.
func (b *backend) echo(stream grpc.ServerStream) error {
	for {
		text, err := receive(stream)
		if isEOF(err) {
			return nil
		}
		if err != nil {
			b.cancelled.Add(1)
			return err
		}
		b.note(text)
		if err := stream.SendMsg(wrapperspb.String("echo " + text)); err != nil {
			return err
		}
	}
}

// collect reads what a client sends, and answers with its number.
func (b *backend) collect(stream grpc.ServerStream) error {
	defer b.done.Add(1)
	a, n := b.begin(stream.Context())
	header, trailer := b.metadataOf(a)
	stream.SetTrailer(trailer)
	if a.header > 0 {
		if err := b.pause(stream.Context(), a.header); err != nil {
			return err
		}
		_ = stream.SendHeader(header)
	} else {
		_ = stream.SetHeader(header)
	}
	if err := b.pause(stream.Context(), a.gap); err != nil { // not reading yet
		return err
	}
	for {
		text, err := receive(stream)
		if isEOF(err) {
			break
		}
		if err != nil {
			b.cancelled.Add(1)
			return err
		}
		b.note(text)
	}
	if err := b.pause(stream.Context(), a.takes); err != nil {
		return err
	}
	if a.err != nil {
		return a.err
	}
	return stream.SendMsg(wrapperspb.String(n))
}

// isEOF compares as generated code and its users do.
func isEOF(err error) bool { return err == io.EOF } //nolint:errorlint // see above

type receiver interface{ RecvMsg(any) error }

func receive(stream receiver) (string, error) {
	var m wrapperspb.StringValue
	err := stream.RecvMsg(&m)
	return m.GetValue(), err
}

// on is the backend that a handler belongs to.
func on(srv any) *backend {
	b, _ := srv.(*backend)
	return b
}

// service is the description that generated code would have.
func service() *grpc.ServiceDesc {
	return &grpc.ServiceDesc{
		ServiceName: "test.Echo",
		HandlerType: (*any)(nil),
		Methods: []grpc.MethodDesc{{MethodName: "Unary", Handler: func(srv any, ctx context.Context, decode func(any) error, _ grpc.UnaryServerInterceptor) (any, error) {
			var req wrapperspb.StringValue
			if err := decode(&req); err != nil {
				return nil, err
			}
			text, err := on(srv).unary(ctx, req.GetValue())
			if err != nil {
				return nil, err
			}
			return wrapperspb.String(text), nil
		}}},
		Streams: []grpc.StreamDesc{
			{StreamName: "Server", ServerStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
				text, err := receive(stream)
				if err != nil {
					return err
				}
				on(srv).note(text)
				return on(srv).stream(stream, false)
			}},
			{StreamName: "Client", ClientStreams: true, Handler: func(srv any, stream grpc.ServerStream) error { return on(srv).collect(stream) }},
			{StreamName: "Bidi", ServerStreams: true, ClientStreams: true, Handler: func(srv any, stream grpc.ServerStream) error {
				return on(srv).stream(stream, true)
			}},
		},
	}
}

// bubble runs a test in time of its own; it fails if a goroutine is left.
func bubble(t *testing.T, test func(*testing.T)) {
	t.Helper()
	t.Parallel()
	synctest.Test(t, test)
}

func build(t testing.TB, layers ...shield.Layer) *shield.Shield {
	t.Helper()
	s, err := shield.New("test", layers...)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start serves the backend over bufconn and returns a connection's options.
func start(t testing.TB, b *backend) []grpc.DialOption {
	t.Helper()
	if len(b.acts) == 0 {
		b.acts = []act{{}}
	}
	listener := bufconn.Listen(1 << 16)
	// A window that stays as it is: in a bubble, round trips take no time, and the
	// estimate of what fits is without a bound.
	server := grpc.NewServer(grpc.InitialWindowSize(1 << 16))
	server.RegisterService(service(), b)
	served := make(chan error, 1)
	go func() { served <- server.Serve(listener) }()
	t.Cleanup(func() {
		server.Stop()
		if err := <-served; err != nil {
			t.Error(err)
		}
	})
	return []grpc.DialOption{
		grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithContextDialer(func(ctx context.Context, _ string) (net.Conn, error) { return listener.DialContext(ctx) }),
	}
}

// dial connects to the backend through shields.
func dial(t testing.TB, b *backend, c grpcshield.Client, more ...grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	options, err := grpcshield.Dial(c)
	if err != nil {
		t.Fatal(err)
	}
	return connect(t, append(append(start(t, b), options...), more...))
}

func connect(t testing.TB, options []grpc.DialOption) *grpc.ClientConn {
	t.Helper()
	cc, err := grpc.NewClient("passthrough:///test", options...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cc.Close() })
	return cc
}

func call(ctx context.Context, cc *grpc.ClientConn, options ...grpc.CallOption) (string, error) {
	var reply wrapperspb.StringValue
	err := cc.Invoke(ctx, unaryMethod, wrapperspb.String("hello"), &reply, options...)
	return reply.GetValue(), err
}

// open opens a stream as generated code does.
func open(ctx context.Context, t *testing.T, cc *grpc.ClientConn, desc *grpc.StreamDesc, options ...grpc.CallOption) grpc.ClientStream {
	t.Helper()
	stream, err := tryOpen(ctx, cc, desc, options...)
	if err != nil {
		t.Fatal(err)
	}
	return stream
}

func tryOpen(ctx context.Context, cc *grpc.ClientConn, desc *grpc.StreamDesc, options ...grpc.CallOption) (grpc.ClientStream, error) {
	stream, err := cc.NewStream(ctx, desc, "/test.Echo/"+desc.StreamName, options...)
	if err != nil || desc.ClientStreams {
		return stream, err
	}
	if err := stream.SendMsg(wrapperspb.String("hello")); err != nil {
		return nil, err
	}
	return stream, stream.CloseSend()
}

// all reads a stream to its end.
func all(stream grpc.ClientStream) (items []string, err error) {
	for {
		item, err := receive(stream)
		if err != nil {
			return items, err
		}
		items = append(items, item)
	}
}

func send(t *testing.T, stream grpc.ClientStream, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if err := stream.SendMsg(wrapperspb.String(text)); err != nil {
			t.Fatal(err)
		}
	}
}

// node reads "x-node", all its values.
func node(md metadata.MD) string {
	joined := ""
	for i, value := range md["x-node"] {
		if i > 0 {
			joined += ","
		}
		joined += value
	}
	return joined
}

func wantCalls(t *testing.T, b *backend, want int32) {
	t.Helper()
	if got := b.calls.Load(); got != want {
		t.Errorf("%d calls reached the server, want %d", got, want)
	}
}

func wantCode(t *testing.T, err error, want codes.Code) {
	t.Helper()
	if got := status.Code(err); got != want {
		t.Errorf("%v: %v, want %v", got, err, want)
	}
}

func timedOut(err error) bool {
	var e *shield.TimedOut
	return errors.As(err, &e)
}

func wantRefused(t *testing.T, err error, reason shield.Reason) {
	t.Helper()
	if !errors.Is(err, &shield.Rejected{Reason: reason}) {
		t.Errorf("%v, want %v", err, reason)
	}
}

// wantNode compares header and trailer with one attempt's number, "" for none.
func wantNode(t *testing.T, header, trailer metadata.MD, want string) {
	t.Helper()
	if node(header) != want || node(trailer) != want {
		t.Errorf("header of %q, trailer of %q, want %q", node(header), node(trailer), want)
	}
}

// tap is an interceptor that is further in than shields: it sees attempts, and
// keeps their errors.
type tap struct {
	mu      sync.Mutex
	errs    []error
	options [][]grpc.CallOption
	before  func(n int) error // instead of the attempt, if it returns one
	after   func(n int, err error) error
}

func (p *tap) dialOption() grpc.DialOption {
	return grpc.WithChainUnaryInterceptor(func(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
		p.mu.Lock()
		p.options = append(p.options, opts)
		n := len(p.options)
		p.mu.Unlock()
		var err error
		if p.before != nil {
			err = p.before(n)
		}
		if err == nil {
			err = invoker(ctx, method, req, reply, cc, opts...)
		}
		if p.after != nil {
			err = p.after(n, err)
		}
		p.mu.Lock()
		p.errs = append(p.errs, err)
		p.mu.Unlock()
		return err
	})
}

// last is the error of the attempt that ended last.
func (p *tap) last() error {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.errs[len(p.errs)-1]
}

// streamTap is an interceptor further in than shields: it sees each RPC of a
// stream, and may say something else than the RPC does.
type streamTap struct {
	options  [][]grpc.CallOption
	messages []any
	open     func(n int) error
	read     func(n int, err error) error
	late     time.Duration // after each success
	header   time.Duration // after each header
	sent     time.Duration // after each write
}

func (p *streamTap) dialOption() grpc.DialOption {
	return grpc.WithChainStreamInterceptor(func(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
		p.options = append(p.options, opts)
		n := len(p.options)
		if p.open != nil {
			if err := p.open(n); err != nil {
				return nil, err
			}
		}
		stream, err := streamer(ctx, desc, cc, method, opts...)
		time.Sleep(p.late)
		return &tapped{ClientStream: stream, tap: p, n: n}, err
	})
}

type tapped struct {
	grpc.ClientStream
	tap *streamTap
	n   int
}

func (s *tapped) SendMsg(m any) error {
	s.tap.messages = append(s.tap.messages, m)
	err := s.ClientStream.SendMsg(m)
	time.Sleep(s.tap.sent)
	return err
}

func (s *tapped) RecvMsg(m any) error {
	err := s.ClientStream.RecvMsg(m)
	time.Sleep(s.tap.late)
	if s.tap.read != nil && err != nil && !isEOF(err) {
		err = s.tap.read(s.n, err)
	}
	return err
}

func (s *tapped) Header() (metadata.MD, error) {
	md, err := s.ClientStream.Header()
	time.Sleep(s.tap.header)
	return md, err
}

// pending is a read that is under way.
type pending struct {
	item string
	err  error
	done chan struct{}
}

func readSoon(stream grpc.ClientStream) *pending {
	p := &pending{done: make(chan struct{})}
	go func() {
		defer close(p.done)
		p.item, p.err = receive(stream)
	}()
	return p
}
