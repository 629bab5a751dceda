package grpc_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"sync"
	"testing"
	"time"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	kregistry "github.com/go-kratos/kratos/v2/registry"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/grpc/test/bufconn"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/transport/grpc"
)

// fakeNet joins clients and servers of one test by address, without sockets.
type fakeNet struct {
	t         testing.TB
	mu        sync.Mutex
	listeners map[string]*bufconn.Listener
	dials     map[string]int
}

func newNet(t testing.TB) *fakeNet {
	return &fakeNet{t: t, listeners: make(map[string]*bufconn.Listener), dials: make(map[string]int)}
}

// listen opens an address, again if it was closed.
func (n *fakeNet) listen(address string) *bufconn.Listener { return n.listenSmall(address, 1<<20) }

// listenSmall is listen with connections that hold little.
func (n *fakeNet) listenSmall(address string, size int) *bufconn.Listener {
	l := bufconn.Listen(size)
	n.mu.Lock()
	defer n.mu.Unlock()
	n.listeners[address] = l
	return l
}

// raw starts a hand-written server at address.
func (n *fakeNet) raw(address string, script func(*rawStream)) *rawServer {
	n.t.Helper()
	return startRaw(n.t, n.listen(address), script)
}

func (n *fakeNet) dialed(address string) int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.dials[address]
}

func (n *fakeNet) dialContext(ctx context.Context, address string) (net.Conn, error) {
	n.mu.Lock()
	n.dials[address]++
	l := n.listeners[address]
	n.mu.Unlock()
	if l == nil {
		return nil, fmt.Errorf("nobody listens at %s", address)
	}
	return l.DialContext(ctx)
}

// testClient is a client under test with its events.
type testClient struct {
	hellov1.GreeterClient
	conn   *stdgrpc.ClientConn
	events *eventLog
}

// client dials through the net; it is closed with the test.
func (n *fakeNet) client(target string, opts ...grpc.ClientOption) *testClient {
	n.t.Helper()
	return dialClient(n.t, target, append([]grpc.ClientOption{grpc.WithOptions(stdgrpc.WithContextDialer(n.dialContext))}, opts...)...)
}

func dialClient(t testing.TB, target string, opts ...grpc.ClientOption) *testClient {
	t.Helper()
	c := &testClient{events: &eventLog{}}
	opts = append([]grpc.ClientOption{grpc.WithInsecure(), grpc.WithEvents(c.events.add)}, opts...)
	conn, err := grpc.NewClient(target, opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close() })
	c.conn, c.GreeterClient = conn, hellov1.NewGreeterClient(conn)
	return c
}

// say is one unary call.
func (c *testClient) say(ctx context.Context, opts ...stdgrpc.CallOption) (string, error) {
	reply, err := c.SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"}, opts...)
	return reply.GetServer(), err
}

// finished are the calls that ended, in their order.
func (c *testClient) finished() []*materpc.RPCInfo {
	var infos []*materpc.RPCInfo
	for _, e := range c.events.of(materpc.RPCFinish) {
		infos = append(infos, e.Info)
	}
	return infos
}

// moves are those of the last call that ended.
func (c *testClient) moves() int {
	infos := c.finished()
	if len(infos) == 0 {
		return -1
	}
	return infos[len(infos)-1].Moves()
}

// fleet is the client's table, by address.
func (c *testClient) fleet() map[string]grpc.InstanceView {
	views := make(map[string]grpc.InstanceView)
	for _, v := range grpc.FleetView(c.conn) {
		views[v.Address] = v
	}
	return views
}

// inFlight is what all instances have open.
func (c *testClient) inFlight() (total int64) {
	for _, v := range grpc.FleetView(c.conn) {
		total += v.InFlight + v.OpenStreams
	}
	return total
}

// awaitReady waits until n instances are connected.
func (c *testClient) awaitReady(t testing.TB, n int) {
	t.Helper()
	await(t, fmt.Sprintf("%d ready instances", n), func() bool {
		ready := 0
		for _, v := range grpc.FleetView(c.conn) {
			if v.Ready {
				ready++
			}
		}
		return ready >= n
	})
}

// await polls; in a bubble its time is fake.
func await(t testing.TB, what string, holds func() bool) {
	t.Helper()
	for range 5000 {
		if holds() {
			return
		}
		<-time.After(time.Millisecond)
	}
	t.Fatalf("waited 5 s for %s", what)
}

// answer is the script of an instance that works.
func answer(id string) func(*rawStream) {
	return func(s *rawStream) { s.reply(&hellov1.SayHelloResponse{Server: id}) }
}

// inOrder picks the first allowed node by address, so that a test knows who is
// tried first.
type inOrder struct {
	first  string // before all others
	onPick func(*selector.Node)
}

func (inOrder) Name() string { return "in-order" }

func (s inOrder) Build(nodes []*selector.Node, _ selector.Picker) selector.Picker {
	sorted := slices.Clone(nodes)
	slices.SortFunc(sorted, func(a, b *selector.Node) int {
		x, y := a.Instance().Address, b.Instance().Address
		if x == s.first || y == s.first {
			return cmp.Compare(btoi(y == s.first), btoi(x == s.first))
		}
		return cmp.Compare(x, y)
	})
	return &inOrderPicker{nodes: sorted, onPick: s.onPick}
}

type inOrderPicker struct {
	nodes  []*selector.Node
	onPick func(*selector.Node)
}

func (p *inOrderPicker) Pick(r *selector.Request) *selector.Node {
	for _, node := range p.nodes {
		if r.Allows(node) {
			if p.onPick != nil {
				p.onPick(node)
			}
			return node
		}
	}
	return nil
}

var ordered = grpc.WithStrategy(inOrder{})

// register publishes an instance of "greeter".
func register(t testing.TB, r *memory.Registry, id, address string, metadata ...string) {
	t.Helper()
	in := &kregistry.ServiceInstance{ID: id, Name: "greeter", Endpoints: []string{"grpc://" + address}}
	for i := 0; i < len(metadata); i += 2 {
		if in.Metadata == nil {
			in.Metadata = make(map[string]string)
		}
		in.Metadata[metadata[i]] = metadata[i+1]
	}
	if err := r.Register(context.WithoutCancel(t.Context()), in); err != nil {
		t.Fatal(err)
	}
}

// wantErr checks code and kind, and what every error of ours must be.
func wantErr(t testing.TB, err error, code codes.Code, kind materpc.ErrorKind) {
	t.Helper()
	if kind == materpc.NoError {
		if err != nil {
			t.Fatalf("error %v (kind %v), want none", err, materpc.KindOf(err))
		}
		return
	}
	s, ok := status.FromError(err)
	if !ok || s.Code() != code || materpc.KindOf(err) != kind {
		t.Fatalf("error %v: code %v, kind %v, status %v; want %v, %v", err, s.Code(), materpc.KindOf(err), ok, code, kind)
	}
	if !errors.Is(err, kind) || kind.Reason() != "REMOTE" && kerrors.FromError(err).Reason != kind.Reason() {
		t.Fatalf("error %v: is its kind %v, Kratos reason %q; want %q", err, errors.Is(err, kind), kerrors.FromError(err).Reason, kind.Reason())
	}
}

func btoi(b bool) int {
	if b {
		return 1
	}
	return 0
}

// muteConn is for servers that accept and never say a word.
func muteConn(net.Conn) bool { return false }

func (n *fakeNet) allDials() (total int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, dials := range n.dials {
		total += dials
	}
	return total
}
