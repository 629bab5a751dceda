package grpc_test

import (
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// A process that was killed and restarted at its address is listed twice until
// the old record expires.
func TestTwoRecordsOfOneAddress(t *testing.T) {
	t.Parallel()
	t.Run("the one that appears later is newer", func(t *testing.T) {
		t.Parallel()
		for _, reversed := range []bool{false, true} {
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				n.raw("a:1", refusing(wire.Draining, "two"))
				n.raw("b:1", answer("b"))
				d := newDiscovery(instanceOf("one", "a:1"), instanceOf("b", "b:1"))
				c := n.client("discovery:///greeter", grpc.WithDiscovery(d), ordered)
				c.awaitReady(t, 2)
				both := []string{"one", "two"}
				if reversed {
					both[0], both[1] = both[1], both[0]
				}
				for range 3 { // equal lists change nothing
					d.push(nil, instanceOf(both[0], "a:1"), instanceOf(both[1], "a:1"), instanceOf("b", "b:1"))
					time.Sleep(time.Second)
				}
				synctest.Wait()
				if got := c.fleet()["a:1"]; got.ID != "two" || !got.Ready || n.dialed("a:1") != 2 {
					t.Errorf("%+v, %d dials; want two, ready, 2", got, n.dialed("a:1"))
				}
				if server, err := c.say(t.Context()); err != nil || server != "b" || c.moves() != 1 {
					t.Errorf("%q, %v, %d moves; want the refusal believed", server, err, c.moves())
				}
				d.push(nil, instanceOf("two", "a:1"), instanceOf("b", "b:1"))
				synctest.Wait()
				if got := c.fleet()["a:1"]; got.ID != "two" || n.dialed("a:1") != 2 {
					t.Errorf("%+v, %d dials once the old record has expired", got, n.dialed("a:1"))
				}
			})
		}
	})
	t.Run("a proof names the other", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			n.raw("a:1", refusing(wire.Draining, "two"))
			n.raw("b:1", answer("b"))
			d := newDiscovery(instanceOf("one", "a:1"), instanceOf("two", "a:1"), instanceOf("b", "b:1"))
			c := n.client("discovery:///greeter", grpc.WithDiscovery(d), ordered)
			c.awaitReady(t, 2)
			// The proof of somebody else moves nothing, as ever (invariant 3).
			_, err := c.say(t.Context())
			wantErr(t, err, codes.Unavailable, materpc.RemoteOrNetwork)
			await(t, "the other record", func() bool { v := c.fleet()["a:1"]; return v.ID == "two" && v.Ready })
			if server, err := c.say(t.Context()); err != nil || server != "b" || c.moves() != 1 {
				t.Errorf("%q, %v, %d moves", server, err, c.moves())
			}
			if got := len(c.events.of(materpc.ProofMismatch)); got != 1 {
				t.Errorf("%d mismatches, want 1", got)
			}
		})
	})
	t.Run("a proof names nobody listed there", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			n.raw("a:1", refusing(wire.Draining, "b"))
			n.raw("b:1", answer("b"))
			c := n.client("discovery:///greeter", ordered, grpc.WithDiscovery(
				newDiscovery(instanceOf("one", "a:1"), instanceOf("two", "a:1"), instanceOf("b", "b:1"))))
			c.awaitReady(t, 2)
			for range 2 {
				_, err := c.say(t.Context())
				wantErr(t, err, codes.Unavailable, materpc.RemoteOrNetwork)
			}
			synctest.Wait()
			if got := c.fleet()["a:1"]; got.ID != "one" || n.dialed("a:1") != 1 {
				t.Errorf("%+v, %d dials; want one, 1", got, n.dialed("a:1"))
			}
		})
	})
	t.Run("both answer at one address", func(t *testing.T) {
		t.Parallel()
		synctest.Test(t, func(t *testing.T) {
			n := newNet(t)
			n.raw("a:1", func(s *rawStream) { s.refuse(wire.Draining, []string{"one", "two"}[s.ordinal%2]) })
			c := n.client("discovery:///greeter", ordered, grpc.WithDiscovery(
				newDiscovery(instanceOf("one", "a:1"), instanceOf("two", "a:1"))))
			c.awaitReady(t, 1)
			for range 20 {
				_, _ = c.say(t.Context())
				time.Sleep(time.Second)
			}
			if got := n.dialed("a:1"); got > 2 {
				t.Errorf("%d dials: the records take turns", got)
			}
		})
	})
}
