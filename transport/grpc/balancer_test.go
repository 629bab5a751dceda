package grpc_test

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"golang.org/x/net/http2"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/health"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/transport/grpc"
)

// opener is an instance that keeps its streams open.
func opener(n *fakeNet, address string) *rawServer {
	s := &rawServer{listener: n.listen(address), script: func(s *rawStream) { s.headers() }, early: true}
	s.start(n.t)
	return s
}

// watchEnd reads a stream until it ends.
func watchEnd(stream hellov1.Greeter_ChatClient) *atomic.Pointer[error] {
	var end atomic.Pointer[error]
	go func() {
		_, err := stream.Recv()
		end.Store(&err)
	}()
	return &end
}

// openOn opens a bidi stream on the instance that p2c's replacement prefers.
func openOn(t *testing.T, c *testClient) hellov1.Greeter_ChatClient {
	t.Helper()
	stream, err := c.Chat(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := stream.Header(); err != nil {
		t.Fatal(err)
	}
	return stream
}

func TestCaseB41EqualPushesChangeNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a, b := opener(n, "a:1"), opener(n, "b:1")
		d := newDiscovery(instanceOf("a", "a:1", "zone", "z"), instanceOf("b", "b:1", "zone", "z"))
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d), ordered)
		c.awaitReady(t, 2)
		onA := watchEnd(openOn(t, c))
		// The second stream goes to b: a is full of weight 0 for a moment.
		d.push(nil, instanceOf("a", "a:1", "zone", "z", "weight", "0"), instanceOf("b", "b:1", "zone", "z"))
		await(t, "a to weigh nothing", func() bool { return c.fleet()["a:1"].Weight == 0 })
		onB := watchEnd(openOn(t, c))
		for range 10 {
			d.push(nil, instanceOf("b", "b:1", "zone", "z"), instanceOf("a", "a:1", "zone", "z"))
			time.Sleep(100 * time.Millisecond)
			d.push(nil, instanceOf("a", "a:1", "zone", "z"), instanceOf("b", "b:1", "zone", "z"))
			time.Sleep(100 * time.Millisecond)
		}
		d.push(nil, instanceOf("a", "a:1", "zone", "y", "weight", "7"), instanceOf("b", "b:1", "zone", "z"))
		await(t, "the new weight", func() bool { return c.fleet()["a:1"].Weight == 7 })
		if a.accepted.Load() != 1 || b.accepted.Load() != 1 || onA.Load() != nil || onB.Load() != nil {
			t.Fatalf("connections %d and %d, ends %v %v; want 1, 1, none", a.accepted.Load(), b.accepted.Load(), onA.Load(), onB.Load())
		}
		d.push(nil, instanceOf("a", "a:1", "zone", "y", "weight", "7"))
		await(t, "b to leave", func() bool { return len(c.fleet()) == 1 })
		time.Sleep(29 * time.Second)
		if onB.Load() != nil {
			t.Fatalf("b's stream ended within the drain grace: %v", *onB.Load())
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if end := onB.Load(); end == nil || materpc.KindOf(*end) != materpc.ConnectionLost {
			t.Errorf("after the drain grace: %v", end)
		}
		if onA.Load() != nil || a.accepted.Load() != 1 || grpc.Leaving(c.conn) != 0 {
			t.Errorf("a: end %v, %d connections; %d leaving", onA.Load(), a.accepted.Load(), grpc.Leaving(c.conn))
		}
	})
}

func TestFirstCallDoesNotHang(t *testing.T) {
	t.Parallel()
	t.Run("direct", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			n.raw("a:1", answer("a"))
			c := n.client("direct:///a:1")
			began := time.Now()
			if _, err := c.say(t.Context()); err != nil || time.Since(began) > 0 {
				t.Errorf("%v after %v", err, time.Since(began))
			}
		})
	})
	t.Run("slow to connect", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			n.raw("a:1", answer("a"))
			c := n.client("direct:///a:1", grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				time.Sleep(2 * time.Second)
				return n.dialContext(ctx, address)
			})))
			if _, err := c.say(t.Context()); err != nil {
				t.Error(err)
			}
		})
	})
	t.Run("discovery comes later", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n, r := newNet(t), memory.New()
			n.raw("a:1", answer("a"))
			c := n.client("discovery:///greeter", grpc.WithDiscovery(r))
			go func() {
				time.Sleep(10 * time.Second)
				register(t, r, "a", "a:1")
			}()
			if _, err := c.say(t.Context(), stdgrpc.WaitForReady(true)); err != nil {
				t.Error(err)
			}
		})
	})
}

// All failing is an answer, at once, also while they connect again.
func TestAllFailing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var dials atomic.Int64
		c := n.client("direct:///a:1,b:1", grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if dials.Add(1) <= 2 {
				return nil, errDial
			}
			<-ctx.Done() // the reconnects hang
			return nil, ctx.Err()
		})))
		for range 10 {
			began := time.Now()
			_, err := c.say(t.Context())
			wantErr(t, err, codes.Unavailable, materpc.GetConnection)
			if !strings.Contains(err.Error(), errDial.Error()) && !strings.Contains(err.Error(), "deadline exceeded") {
				t.Errorf("%v does not tell the last cause", err)
			}
			if took := time.Since(began); took > 100*time.Millisecond {
				t.Errorf("a call took %v", took)
			}
			time.Sleep(170 * time.Millisecond)
		}
		if dials.Load() < 4 {
			t.Errorf("%d dials: nobody connects again", dials.Load())
		}
	})
}

// A connection takes 1,000 calls, then the next instance is used; when all are
// full grpc-go queues.
func TestFullConnectionUsesTheNextInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := n.raw("a:1", func(*rawStream) {})
		b := n.raw("b:1", func(*rawStream) {})
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		ctx, cancel := context.WithCancel(t.Context())
		var calls sync.WaitGroup
		for range 1100 {
			calls.Go(func() { _, _ = c.say(ctx) })
		}
		synctest.Wait()
		if a.requests.Load() != 1000 || b.requests.Load() != 100 {
			t.Errorf("a has %d, b %d; want 1000, 100", a.requests.Load(), b.requests.Load())
		}
		cancel()
		calls.Wait()
		if got := c.inFlight(); got != 0 {
			t.Errorf("%d in flight", got)
		}
	})
}

// Same address, new process: a new SubConn with fresh statistics; the old one
// drains.
func TestSameAddressNewID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := n.raw("a:1", answer("a"))
		d := newDiscovery(instanceOf("one", "a:1"))
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d))
		c.awaitReady(t, 1)
		if _, err := c.say(t.Context()); err != nil {
			t.Fatal(err)
		}
		d.push(nil, instanceOf("two", "a:1"))
		await(t, "the second connection", func() bool { return c.fleet()["a:1"].ID == "two" && c.fleet()["a:1"].Ready })
		if got := c.fleet()["a:1"]; got.Results != 0 || a.accepted.Load() != 2 {
			t.Errorf("%+v, %d connections", got, a.accepted.Load())
		}
		if _, err := c.say(t.Context()); err != nil {
			t.Fatal(err)
		}
		await(t, "the first connection to close", func() bool { return len(a.live()) == 1 && grpc.Leaving(c.conn) == 0 })
	})
}

// A late result of an instance that left reaches nobody (invariant 1).
func TestInvariant01LateResultOfALeftInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		server := n.raw("a:1", func(s *rawStream) {
			time.Sleep(5 * time.Second)
			s.fail(codes.Internal, "late")
		})
		d := newDiscovery(instanceOf("a", "a:1"))
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d))
		c.awaitReady(t, 1)
		late := make(chan error, 1)
		go func() {
			_, err := c.say(t.Context())
			late <- err
		}()
		synctest.Wait()
		d.push(nil, instanceOf("b", "b:1"))
		await(t, "a to leave", func() bool { _, ok := c.fleet()["a:1"]; return !ok })
		d.push(nil, instanceOf("a", "a:1"))
		await(t, "a to return", func() bool { return c.fleet()["a:1"].Ready })
		if got := grpc.Leaving(c.conn); got != 1 || server.accepted.Load() != 2 {
			t.Errorf("%d instances within their grace, %d connections; want the one that left, and a new one", got, server.accepted.Load())
		}
		wantErr(t, <-late, codes.Internal, materpc.RemoteOrNetwork)
		if got := c.fleet()["a:1"]; got.Results != 0 || got.InFlight != 0 {
			t.Errorf("the result reached the instance that returned: %+v", got)
		}
		await(t, "the one that left to be gone", func() bool { return len(server.live()) == 1 && grpc.Leaving(c.conn) == 0 })
	})
}

// Trap 11: a ctx of one call leaks into a call on another connection.
func TestLeakedContextOfAnotherConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", answer("a"))
		var sent [][]string
		n.raw("b:1", func(s *rawStream) {
			sent = append(sent, s.header[wire.HeaderKey])
			if s.ordinal == 1 {
				s.refuse(wire.Draining, "")
				return
			}
			answer("b")(s)
		})
		n.raw("c:1", answer("c"))
		other := n.client("direct:///b:1,c:1", ordered)
		other.awaitReady(t, 2)
		nested := func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
			if server, err := other.say(ctx); err != nil || server != "c" {
				t.Errorf("nested: %q, %v", server, err)
			}
			return invoker(ctx, method, req, reply, cc, opts...)
		}
		c := n.client("direct:///a:1", grpc.WithUnaryInterceptor(nested))
		if server, err := c.say(t.Context()); err != nil || server != "a" {
			t.Fatalf("%q, %v", server, err)
		}
		if got := other.finished(); len(got) != 1 || got[0].Moves() != 1 {
			t.Errorf("nested call: %d finishes", len(got))
		}
		if len(sent) != 1 || wireNonce(sent[0]) != grpc.Nonce(other.conn) {
			t.Errorf("sent %v, want the nonce of the connection used, last", sent)
		}
		if len(c.events.of(materpc.Ungoverned))+len(other.events.of(materpc.Ungoverned)) != 0 {
			t.Error("ungoverned")
		}
	})
}

// A record of another connection is foreign to the picker.
func TestForeignRecordAtThePicker(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", answer("a"))
		n.raw("b:1", answer("b"))
		var leaked context.Context
		c := n.client("direct:///a:1", grpc.WithUnaryInterceptor(
			func(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
				leaked = ctx
				return invoker(ctx, method, req, reply, cc, opts...)
			}))
		other := n.client("direct:///b:1", grpc.WithUnaryInterceptor(
			func(_ context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
				return invoker(leaked, method, req, reply, cc, opts...)
			}))
		c.awaitReady(t, 1)
		other.awaitReady(t, 1) // a pick that waits is asked again, and told again
		if _, err := c.say(t.Context()); err != nil {
			t.Fatal(err)
		}
		if _, err := other.say(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.finished()[0].Peer().Address; got != "a:1" || len(other.events.of(materpc.Ungoverned)) != 1 {
			t.Errorf("the first call's peer became %s; %d ungoverned", got, len(other.events.of(materpc.Ungoverned)))
		}
	})
}

// A pick that finds its connection gone has nothing in flight while it waits.
func TestPickOfAConnectionThatIsGone(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := n.raw("a:1", answer("a"))
		var gone, slow atomic.Bool
		c := n.client("direct:///a:1", grpc.WithStrategy(inOrder{onPick: func(*selector.Node) {
			if !gone.Swap(true) {
				slow.Store(true)
				a.live()[0].close()
				time.Sleep(time.Millisecond)
			}
		}}), grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return n.dialContext(ctx, address)
		})))
		c.awaitReady(t, 1)
		done := make(chan error, 1)
		go func() {
			_, err := c.say(t.Context())
			done <- err
		}()
		time.Sleep(time.Second)
		if got := c.inFlight(); got != 0 {
			t.Errorf("%d in flight while the pick waits", got)
		}
		if err := <-done; err != nil || c.moves() != 0 || a.requests.Load() != 1 {
			t.Errorf("%v, %d moves, %d requests", err, c.moves(), a.requests.Load())
		}
	})
}

func wireNonce(values []string) string {
	h, _ := wire.ParseHeader(values[len(values)-1])
	return h.Nonce
}

// A call that reaches the balancer without our state is an event, and works.
func TestUngovernedCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", answer("a"))
		c := n.client("direct:///a:1", grpc.WithUnaryInterceptor(
			func(_ context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
				return invoker(context.Background(), method, req, reply, cc, opts...)
			}))
		c.awaitReady(t, 1)
		if _, err := c.say(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := c.events.of(materpc.Ungoverned); len(got) != 1 || got[0].Detail != hellov1.Greeter_SayHello_FullMethodName {
			t.Errorf("events %+v", got)
		}
	})
}

// B73 without hedges: every pick gets one done.
func TestCaseB73InFlightReturnsToZero(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var requests atomic.Int64
		script := func(s *rawStream) {
			switch requests.Add(1); {
			case s.method == hellov1.Greeter_Chat_FullMethodName:
				s.headers()
			case s.method == hellov1.Greeter_ListHellos_FullMethodName:
				s.rst(http2.ErrCodeRefusedStream)
			default:
				s.reply(&hellov1.SayHelloResponse{})
			}
		}
		for _, address := range []string{"a:1", "b:1"} {
			s := &rawServer{listener: n.listen(address), script: script, early: true}
			s.start(t)
		}
		c := n.client("direct:///a:1,b:1")
		c.awaitReady(t, 2)
		for range 100 {
			ctx, cancel := context.WithCancel(t.Context())
			if _, err := c.Chat(ctx); err != nil {
				t.Fatal(err)
			}
			cancel()
			failing, err := c.ListHellos(t.Context(), &hellov1.ListHellosRequest{Name: "ada"})
			if err != nil {
				t.Fatal(err)
			}
			_, err = readAll(failing)
			wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
			if _, err := c.say(t.Context()); err != nil {
				t.Fatal(err)
			}
			closed, stop := context.WithCancel(t.Context())
			stop()
			if _, err := c.Chat(closed); materpc.KindOf(err) != materpc.CanceledByBusiness {
				t.Fatalf("%v, kind %v", err, materpc.KindOf(err))
			}
		}
		time.Sleep(time.Second)
		synctest.Wait()
		for address, v := range c.fleet() {
			if v.InFlight != 0 || v.OpenStreams != 0 {
				t.Errorf("%s: %d in flight, %d open streams", address, v.InFlight, v.OpenStreams)
			}
		}
		if got := len(c.finished()); got != 400 {
			t.Errorf("%d finishes, want 400", got)
		}
	})
}

// B22 in the form of moves: an instance that refuses, fast, does not attract
// calls; every call succeeds and asks no instance twice.
func TestCaseB22MovesAvoidWhatWasTried(t *testing.T) {
	t.Parallel()
	for name, refusal := range refusals() {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				bad := n.raw("a:1", refusal)
				var before int64
				for _, address := range []string{"b:1", "c:1"} {
					n.raw(address, func(s *rawStream) {
						time.Sleep(20 * time.Millisecond)
						answer(address)(s)
					})
				}
				c := n.client("direct:///a:1,b:1,c:1")
				c.awaitReady(t, 3)
				for i := range 30 {
					if i == 20 {
						before = bad.requests.Load()
					}
					var calls sync.WaitGroup
					for range 10 {
						calls.Go(func() {
							if _, err := c.say(t.Context()); err != nil {
								t.Error(err)
							}
						})
					}
					calls.Wait()
				}
				moves := 0
				for _, info := range c.finished() {
					if info.Moves() > 1 {
						t.Errorf("a call moved %d times", info.Moves())
					}
					moves += info.Moves()
				}
				if int64(moves) < bad.requests.Load() { // never sent counts as well
					t.Errorf("%d moves, %d refusals", moves, bad.requests.Load())
				}
				if last := bad.requests.Load() - before; last > 33 {
					t.Errorf("%d of the last 100 calls asked the instance that refuses", last)
				}
			})
		})
	}
}

// NOT_SERVING is not pickable and charged to nobody.
func TestHealthCheckOption(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		state := health.NewServer()
		s := stdgrpc.NewServer()
		healthpb.RegisterHealthServer(s, state)
		hellov1.RegisterGreeterServer(s, &constantReply{reply: &hellov1.SayHelloResponse{Server: "a"}})
		state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
		served := make(chan error, 1)
		l := n.listen("a:1")
		go func() { served <- s.Serve(l) }()
		c := n.client("direct:///a:1", grpc.WithHealthCheck(true))
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.GetConnection)
		state.SetServingStatus("", healthpb.HealthCheckResponse_SERVING)
		await(t, "SERVING", func() bool { return c.fleet()["a:1"].Ready })
		if server, err := c.say(t.Context()); err != nil || server != "a" {
			t.Errorf("%q, %v", server, err)
		}
		state.SetServingStatus("", healthpb.HealthCheckResponse_NOT_SERVING)
		await(t, "NOT_SERVING", func() bool { return !c.fleet()["a:1"].Ready })
		if got := c.fleet()["a:1"]; got.Results != 1 || n.dialed("a:1") != 1 {
			t.Errorf("%+v, %d dials", got, n.dialed("a:1"))
		}
		_ = c.conn.Close()
		s.Stop()
		t.Log("ended:", <-served)
	})
}

// B49: a call over [::1] through discovery, the host glued exactly once.
func TestCaseB49CallOverIPv6(t *testing.T) {
	t.Parallel()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "[::1]:0")
	if err != nil {
		t.Skipf("no IPv6 here: %v", err)
	}
	s := startRaw(t, l, answer("six"))
	r := memory.New()
	in := &kregistry.ServiceInstance{ID: "six", Name: "greeter", Endpoints: []string{"grpc://" + l.Addr().String()}}
	if err := r.Register(t.Context(), in); err != nil {
		t.Fatal(err)
	}
	for _, target := range []string{"discovery:///greeter", "direct:///" + l.Addr().String(), l.Addr().String()} {
		c := dialClient(t, target, grpc.WithDiscovery(r))
		if server, err := c.say(t.Context()); err != nil || server != "six" {
			t.Errorf("%s: %q, %v", target, server, err)
		}
	}
	if s.requests.Load() != 3 {
		t.Errorf("%d requests", s.requests.Load())
	}
}
