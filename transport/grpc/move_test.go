package grpc_test

import (
	"context"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/net/http2"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/transport/grpc"
)

// refusing is the script of an instance whose gate refuses.
func refusing(reason, id string, pairs ...string) func(*rawStream) {
	return func(s *rawStream) { s.refuse(reason, id, pairs...) }
}

// rows of one call against a (asked first) and b, both in the list.
func TestInvariant03OnlyARefusalOfThisHopMoves(t *testing.T) {
	t.Parallel()
	rst := func(s *rawStream) { s.rst(http2.ErrCodeRefusedStream) }
	foreign := func(reason string, proof wire.Proof) func(*rawStream) {
		return func(s *rawStream) { s.fail(codes.Unavailable, reason, wire.RefusedKey, proof.Refusal()) }
	}
	for _, test := range []struct {
		name  string
		a, b  func(*rawStream)
		code  codes.Code
		kind  materpc.ErrorKind
		moves int
		sawA  int64
		sawB  int64
	}{
		{"draining moves", refusing(wire.Draining, ""), answer("b"), 0, 0, 1, 1, 1},
		{"overloaded moves", refusing(wire.Overloaded, ""), answer("b"), 0, 0, 1, 1, 1},
		{"limited does not", refusing(wire.Limited, ""), answer("b"), codes.Unavailable, materpc.Overlimit, 0, 1, 0},
		{"unknown reason does not", refusing("tired", ""), answer("b"), codes.Unavailable, materpc.Overlimit, 0, 1, 0},
		{"overloaded moves once", refusing(wire.Overloaded, ""), refusing(wire.Overloaded, ""), codes.Unavailable, materpc.ServerRefused, 1, 1, 1},
		{"an instance refusal never returns", refusing(wire.Draining, ""), refusing(wire.Draining, ""), codes.Unavailable, materpc.ServerRefused, 1, 1, 1},
		{"a connection refusal returns once", rst, refusing(wire.Draining, ""), codes.Unavailable, materpc.ServerRefused, 2, 2, 1},
		{"a connection refusal returns once only", rst, rst, codes.Unavailable, materpc.ServerRefused, 2, 2, 1},
		{"a return leaves out who refused", refusing(wire.Overloaded, ""), rst, codes.Unavailable, materpc.ServerRefused, 2, 1, 2},
		{"negative pushback stops", refusing(wire.Draining, "", "grpc-retry-pushback-ms", "-1"), answer("b"), codes.Unavailable, materpc.ServerRefused, 0, 1, 0},
		{"unreadable pushback stops", refusing(wire.Draining, "", "grpc-retry-pushback-ms", "soon"), answer("b"), codes.Unavailable, materpc.ServerRefused, 0, 1, 0},
		{"positive pushback does not", refusing(wire.Draining, "", "grpc-retry-pushback-ms", "60000"), answer("b"), 0, 0, 1, 1, 1},
		{"a proof behind a reply header moves (B69)", func(s *rawStream) {
			s.headers("set-by", "middleware")
			s.trailers(codes.Unavailable, "draining", wire.RefusedKey, wire.Proof{Nonce: s.nonce(), Reason: wire.Draining}.Refusal())
		}, answer("b"), 0, 0, 1, 1, 1},
		{"another client's nonce proves nothing", foreign("busy", wire.Proof{Nonce: "other", Reason: wire.Draining}), answer("b"), codes.Unavailable, materpc.RemoteOrNetwork, 0, 1, 0},
		{"an abort never moves", func(s *rawStream) { s.fail(codes.Unavailable, "shutdown", wire.AbortedKey, s.nonce()) }, answer("b"), codes.Unavailable, materpc.ServerDraining, 0, 1, 0},
		{"another client's abort is remote", func(s *rawStream) { s.fail(codes.Unavailable, "shutdown", wire.AbortedKey, "other") }, answer("b"), codes.Unavailable, materpc.RemoteOrNetwork, 0, 1, 0},
		{"a handler's own Unavailable runs once", func(s *rawStream) { s.fail(codes.Unavailable, "database down") }, answer("b"), codes.Unavailable, materpc.RemoteOrNetwork, 0, 1, 0},
		{"the last value counts", func(s *rawStream) {
			own := wire.Proof{Nonce: s.nonce(), Reason: wire.Draining}.Refusal()
			s.fail(codes.Unavailable, "relayed", wire.RefusedKey, own, wire.RefusedKey, "other;draining;")
		}, answer("b"), codes.Unavailable, materpc.RemoteOrNetwork, 0, 1, 0},
		{"the last value counts, own", func(s *rawStream) {
			own := wire.Proof{Nonce: s.nonce(), Reason: wire.Draining}.Refusal()
			s.fail(codes.Unavailable, "relayed", wire.RefusedKey, "other;draining;", wire.RefusedKey, own)
		}, answer("b"), 0, 0, 1, 1, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				a, b := n.raw("a:1", test.a), n.raw("b:1", test.b)
				c := n.client("direct:///a:1,b:1", ordered)
				c.awaitReady(t, 2)
				server, err := c.say(t.Context())
				wantErr(t, err, test.code, test.kind)
				if err == nil && server != "b" {
					t.Errorf("answered by %q, want b", server)
				}
				if c.moves() != test.moves || a.requests.Load() != test.sawA || b.requests.Load() != test.sawB {
					t.Errorf("%d moves, a saw %d, b saw %d; want %d, %d, %d",
						c.moves(), a.requests.Load(), b.requests.Load(), test.moves, test.sawA, test.sawB)
				}
				if events := c.events.of(materpc.Move); len(events) != test.moves {
					t.Errorf("%d move events, want %d", len(events), test.moves)
				}
				if got := c.finished()[0].Attempts(); got != 1 {
					t.Errorf("%d attempts, want 1: moves are no attempts", got)
				}
				if got := c.inFlight(); got != 0 {
					t.Errorf("%d in flight", got)
				}
			})
		})
	}
}

// With discovery only the id of the instance that was picked counts.
func TestInvariant03ProofNamesThePickedInstance(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		id         string
		moves      int
		mismatches int
	}{
		"own":   {"a", 1, 0},
		"other": {"b", 0, 1},
		"none":  {"", 0, 1},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n, r := newNet(t), memory.New()
				n.raw("a:1", refusing(wire.Draining, test.id))
				b := n.raw("b:1", answer("b"))
				register(t, r, "a", "a:1")
				register(t, r, "b", "b:1")
				c := n.client("discovery:///greeter", ordered, grpc.WithDiscovery(r))
				c.awaitReady(t, 2)
				_, err := c.say(t.Context())
				if test.moves > 0 {
					wantErr(t, err, codes.OK, materpc.NoError)
				} else {
					wantErr(t, err, codes.Unavailable, materpc.RemoteOrNetwork)
				}
				if got := len(c.events.of(materpc.ProofMismatch)); got != test.mismatches || int(b.requests.Load()) != test.moves {
					t.Errorf("%d mismatches, b saw %d; want %d, %d", got, b.requests.Load(), test.mismatches, test.moves)
				}
			})
		})
	}
}

// A relay that forwards what it got, request header and trailers alike, reads
// RemoteOrNetwork at the caller: the inner nonce is the relay's own.
func TestInvariant03RelayedProofIsRemote(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		inner := n.raw("inner:1", refusing(wire.Draining, ""))
		relayed := n.client("direct:///inner:1")
		relayed.awaitReady(t, 1)
		relay := func(s *rawStream) {
			ctx := metadata.NewOutgoingContext(t.Context(), metadata.MD{wire.HeaderKey: s.header[wire.HeaderKey]})
			var trailer metadata.MD
			_, err := relayed.say(ctx, stdgrpc.Trailer(&trailer))
			wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
			var pairs []string
			for _, value := range trailer[wire.RefusedKey] {
				pairs = append(pairs, wire.RefusedKey, value)
			}
			if len(pairs) == 0 {
				t.Error("the relay got no proof to pass on")
			}
			s.fail(codes.Unavailable, "relayed", pairs...)
		}
		a, b := n.raw("a:1", relay), n.raw("b:1", answer("b"))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.RemoteOrNetwork)
		if a.requests.Load() != 1 || b.requests.Load() != 0 || inner.requests.Load() != 1 {
			t.Errorf("a %d, b %d, inner %d requests; want 1, 0, 1", a.requests.Load(), b.requests.Load(), inner.requests.Load())
		}
	})
}

// A proxy that passes requests and trailers through unchanged proves nothing
// where instances have ids; without ids it is part of the connection.
func TestInvariant03PassThroughProxyProvesNothingWithIDs(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r := newNet(t), memory.New()
		// The server behind the proxy is not the instance that discovery names.
		n.raw("proxy:1", refusing(wire.Draining, "behind"))
		b := n.raw("z:1", answer("z"))
		register(t, r, "proxy", "proxy:1")
		register(t, r, "z", "z:1")
		c := n.client("discovery:///greeter", ordered, grpc.WithDiscovery(r))
		c.awaitReady(t, 2)
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.RemoteOrNetwork)
		if b.requests.Load() != 0 {
			t.Error("the call moved")
		}
	})
}

// A proof of draining takes the instance out of the pick set until its
// connection changes.
func TestDrainingInstanceLeavesThePickSet(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var draining atomic.Bool
		draining.Store(true)
		a := n.raw("a:1", func(s *rawStream) {
			if draining.Load() {
				s.refuse(wire.Draining, "")
				return
			}
			answer("a")(s)
		})
		n.raw("b:1", answer("b"))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		for range 20 {
			if server, err := c.say(t.Context()); err != nil || server != "b" {
				t.Fatalf("%q, %v", server, err)
			}
		}
		if a.requests.Load() != 1 || len(c.events.of(materpc.InstanceDraining)) != 1 {
			t.Errorf("a saw %d requests, %d events; want 1, 1", a.requests.Load(), len(c.events.of(materpc.InstanceDraining)))
		}
		draining.Store(false)
		for _, conn := range a.live() {
			conn.goAway(0)
			conn.close()
		}
		await(t, "a to be back", func() bool { return c.fleet()["a:1"].Ready })
		if server, err := c.say(t.Context()); err != nil || server != "a" {
			t.Fatalf("after the new connection: %q, %v", server, err)
		}
	})
}

// A proof that arrives once the instance has a new connection says nothing
// about that one.
func TestLateProofDoesNotTakeOutTheNewConnection(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		release := make(chan struct{})
		a := n.raw("a:1", func(s *rawStream) {
			if s.ordinal == 1 {
				<-release
				s.refuse(wire.Draining, "")
				return
			}
			answer("a")(s)
		})
		n.raw("b:1", answer("b"))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		moved := make(chan error, 1)
		go func() {
			_, err := c.say(t.Context())
			moved <- err
		}()
		synctest.Wait()
		a.live()[0].goAway(1) // ours goes on, the SubConn connects again
		await(t, "the second connection", func() bool { return a.accepted.Load() == 2 && c.fleet()["a:1"].Ready })
		close(release)
		if err := <-moved; err != nil {
			t.Fatal(err)
		}
		if !c.fleet()["a:1"].Ready || len(c.events.of(materpc.InstanceDraining)) != 0 {
			t.Errorf("the late proof took the new connection out: %+v", c.fleet()["a:1"])
		}
		if server, err := c.say(t.Context()); err != nil || server != "a" {
			t.Errorf("%q, %v; want a", server, err)
		}
	})
}

func TestMovesAreBounded(t *testing.T) {
	t.Parallel()
	for reason, want := range map[string]int{wire.Draining: 5, wire.Overloaded: 1} {
		t.Run(reason, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				target, seen := "direct:///", int64(0)
				var servers []*rawServer
				for i := range 9 {
					address := "s" + strconv.Itoa(i) + ":1"
					servers = append(servers, n.raw(address, refusing(reason, "")))
					target += address + ","
				}
				c := n.client(target[:len(target)-1], ordered)
				c.awaitReady(t, 9)
				_, err := c.say(t.Context())
				wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
				for _, s := range servers {
					if s.requests.Load() > 1 {
						t.Errorf("an instance saw %d requests", s.requests.Load())
					}
					seen += s.requests.Load()
				}
				if seen != int64(want)+1 || c.moves() != want {
					t.Errorf("%d tries, %d moves; want %d, %d", seen, c.moves(), want+1, want)
				}
			})
		})
	}
}

// Overload moves cost a token of the client's budget each, and only then.
func TestOverloadMovesWithinTheBudget(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := n.raw("a:1", refusing(wire.Overloaded, ""))
		b := n.raw("b:1", func(s *rawStream) { s.fail(codes.NotFound, "no") }) // earns nothing
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		for range 120 {
			_, _ = c.say(t.Context())
		}
		if a.requests.Load() != 120 || b.requests.Load() != 100 {
			t.Errorf("a saw %d, b %d; want 120 and the budget of 100", a.requests.Load(), b.requests.Load())
		}
		only := n.client("direct:///a:1")
		only.awaitReady(t, 1)
		_, err := only.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
		if got := grpc.BudgetTokens(only.conn); got != 100 {
			t.Errorf("%d tokens after a move that had nowhere to go, want 100", got)
		}
	})
}

func TestNoMoveInTheCallersLastMillisecond(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(s *rawStream) {
			time.Sleep(time.Second - 500*time.Microsecond)
			s.refuse(wire.Draining, "")
		})
		b := n.raw("b:1", answer("b"))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.say(ctx)
		wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
		if b.requests.Load() != 0 {
			t.Error("the call moved")
		}
	})
}

// Nothing untried is left: the last refusal is returned, also when an instance
// that seemed worth waiting for turns out to be dead.
func TestLastRefusalIsReturned(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", refusing(wire.Draining, ""))
		mute := &rawServer{listener: n.listen("b:1"), script: func(*rawStream) {}, onConn: muteConn}
		mute.start(t)
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 1)
		began := time.Now()
		var trailer metadata.MD
		_, err := c.say(t.Context(), stdgrpc.Trailer(&trailer))
		wantErr(t, err, codes.Unavailable, materpc.ServerRefused)
		if took := time.Since(began); took < time.Second || took > 5*time.Second {
			t.Errorf("took %v, want the connect timeout of 3 s", took)
		}
		if len(trailer[wire.RefusedKey]) != 1 {
			t.Errorf("trailer %v is not the refusal's, which was returned", trailer)
		}
	})
}

// WaitForReady waits for the set to change.
func TestWaitForReadyWaitsForAnotherInstance(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n, r := newNet(t), memory.New()
		a := n.raw("a:1", refusing(wire.Draining, "a"))
		register(t, r, "a", "a:1")
		c := n.client("discovery:///greeter", ordered, grpc.WithDiscovery(r))
		c.awaitReady(t, 1)
		go func() {
			time.Sleep(10 * time.Second)
			n.raw("b:1", answer("b"))
			register(t, r, "b", "b:1")
		}()
		began := time.Now()
		server, err := c.say(t.Context(), stdgrpc.WaitForReady(true))
		if err != nil || server != "b" {
			t.Fatalf("%q, %v", server, err)
		}
		if took := time.Since(began); took < 9*time.Second {
			t.Errorf("took %v", took)
		}
		if a.requests.Load() != 1 || c.moves() != 1 {
			t.Errorf("a saw %d requests, %d moves", a.requests.Load(), c.moves())
		}
	})
}

// An address without an id is not its process: a call that waits goes to the
// next one behind it. (It waited for ever.)
func TestWaitForReadyReturnsToAnAddressWithoutAnID(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := n.raw("a:1", func(s *rawStream) {
			if s.ordinal == 1 {
				s.refuse(wire.Draining, "")
				time.AfterFunc(time.Second, s.conn.close)
				return
			}
			answer("a")(s)
		})
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		began := time.Now()
		if _, err := c.say(t.Context(), stdgrpc.WaitForReady(true)); err != nil || time.Since(began) < time.Second {
			t.Errorf("%v after %v", err, time.Since(began))
		}
		if a.requests.Load() != 2 || c.moves() != 1 {
			t.Errorf("%d requests, %d moves", a.requests.Load(), c.moves())
		}
	})
}

// Header, Trailer and Peer hold the returned try's values; OnFinish runs once.
func TestTargetsHoldTheReturnedTry(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", refusing(wire.Draining, "", "who", "a", "only-a", "x"))
		n.raw("b:1", func(s *rawStream) { s.headers("who-header", "b"); s.trailers(codes.NotFound, "no", "who", "b") })
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		var header, trailer metadata.MD
		var p peer.Peer
		var finished []error
		_, err := c.say(t.Context(), stdgrpc.Header(&header), stdgrpc.Trailer(&trailer), stdgrpc.Peer(&p),
			stdgrpc.OnFinish(func(err error) { finished = append(finished, err) }))
		wantErr(t, err, codes.NotFound, materpc.RemoteOrNetwork)
		if got := trailer.Get("who"); len(got) != 1 || got[0] != "b" || len(trailer.Get("only-a")) != 0 {
			t.Errorf("trailer %v", trailer)
		}
		if got := header.Get("who-header"); len(got) != 1 || p.Addr == nil {
			t.Errorf("header %v, peer %v", header, p.Addr)
		}
		if len(finished) != 1 || materpc.KindOf(finished[0]) != materpc.RemoteOrNetwork {
			t.Errorf("OnFinish ran %d times: %v", len(finished), finished)
		}
		if got := c.finished()[0].Peer().Address; got != "b:1" {
			t.Errorf("RPCInfo names %s as the peer", got)
		}
	})
}

// A try that ends without a stream has no values, whatever the one before had.
func TestTargetsOfATryWithoutAStream(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", refusing(wire.Draining, ""))
		c := n.client("direct:///a:1", ordered)
		c.awaitReady(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		var header, trailer metadata.MD
		var p peer.Peer
		_, err := c.say(ctx, stdgrpc.WaitForReady(true), stdgrpc.Header(&header), stdgrpc.Trailer(&trailer), stdgrpc.Peer(&p))
		wantErr(t, err, codes.DeadlineExceeded, materpc.TimeoutByBusiness)
		if c.moves() != 1 || header != nil || trailer != nil || p.Addr != nil {
			t.Errorf("%d moves, header %v, trailer %v, peer %v", c.moves(), header, trailer, p.Addr)
		}
	})
}

// hangUp is a credential that runs between pick and stream.
type hangUp struct{ run func() error }

func (h hangUp) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, h.run()
}
func (hangUp) RequireTransportSecurity() bool { return false }

// A connection that ends between pick and stream: never sent, so the call
// moves, with the untried instance first.
func TestNeverSentMoves(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a, b := n.raw("a:1", answer("a")), n.raw("b:1", answer("b"))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		cuts := 0
		server, err := c.say(t.Context(), stdgrpc.PerRPCCredentials(hangUp{func() error {
			if cuts++; cuts == 1 {
				a.live()[0].close()
				<-time.After(time.Nanosecond) // until the client has seen it
			}
			return nil
		}}))
		if err != nil || server != "b" || cuts != 2 {
			t.Fatalf("%q, %v after %d streams", server, err, cuts)
		}
		if c.moves() != 1 || a.requests.Load() != 0 || b.requests.Load() != 1 {
			t.Errorf("%d moves, a saw %d, b saw %d; want 1, 0, 1", c.moves(), a.requests.Load(), b.requests.Load())
		}
		if events := c.events.of(materpc.Move); len(events) != 1 || events[0].Kind != materpc.GetConnection || events[0].Peer.Address != "a:1" {
			t.Errorf("events %+v", events)
		}
		if got := c.inFlight(); got != 0 {
			t.Errorf("%d in flight", got)
		}
	})
}

// The same for ever: bounded, and never sent.
func TestNeverSentIsBounded(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		a := n.raw("a:1", answer("a"))
		c := n.client("direct:///a:1", ordered)
		c.awaitReady(t, 1)
		_, err := c.say(t.Context(), stdgrpc.PerRPCCredentials(hangUp{func() error {
			for _, conn := range a.live() {
				conn.close()
			}
			<-time.After(time.Nanosecond)
			return nil
		}}))
		wantErr(t, err, codes.Unavailable, materpc.GetConnection)
		if a.requests.Load() != 0 || c.moves() != 5 {
			t.Errorf("a saw %d requests, %d moves", a.requests.Load(), c.moves())
		}
	})
}
