package grpc_test

import (
	"context"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/transport/grpc"
)

// awake counts the instances that have a connection or want one.
func awake(c *testClient) (count int) {
	for _, v := range grpc.FleetView(c.conn) {
		if !v.Dormant {
			count++
		}
	}
	return count
}

func readyIn(c *testClient) (count int) {
	for _, v := range grpc.FleetView(c.conn) {
		if v.Ready {
			count++
		}
	}
	return count
}

// Once the subset works again the client goes back to its size, without an end
// of a call.
func TestSubsetShrinksBack(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var addresses []string
		for i := range 12 {
			addresses = append(addresses, fmt.Sprintf("s%02d:1", i))
		}
		c := n.client("direct:///"+strings.Join(addresses, ","), grpc.WithSubset(3))
		synctest.Wait()
		var first []string
		for _, v := range grpc.FleetView(c.conn) {
			if v.Dormant {
				opener(n, v.Address)
			} else {
				first = append(first, v.Address)
			}
		}
		stream := openOn(t, c) // outside the subset: nobody listens there
		end := watchEnd(stream)
		if got := awake(c); got != 6 {
			t.Fatalf("%d awake, want 6", got)
		}
		for _, address := range first {
			opener(n, address)
		}
		c.awaitReady(t, 6)
		time.Sleep(59 * time.Second)
		if got := awake(c); got != 6 {
			t.Errorf("%d awake before the subset was well for a minute, want 6", got)
		}
		time.Sleep(2 * time.Minute)
		synctest.Wait()
		if got, ready := awake(c), readyIn(c); got != 3 || ready != 3 {
			t.Errorf("%d awake, %d ready, want the subset of 3", got, ready)
		}
		if end.Load() != nil {
			t.Errorf("the stream ended: %v", *end.Load())
		}
		openOn(t, c) // what is left serves
	})
}

// A subset with an instance that never comes back shrinks too, to as many that
// work.
func TestSubsetShrinksWithADeadInstanceInIt(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var addresses []string
		for i := range 12 {
			addresses = append(addresses, fmt.Sprintf("s%02d:1", i))
		}
		c := n.client("direct:///"+strings.Join(addresses, ","), grpc.WithSubset(3))
		synctest.Wait()
		var first []string
		for _, v := range grpc.FleetView(c.conn) {
			if v.Dormant {
				n.raw(v.Address, answer(v.Address))
			} else {
				first = append(first, v.Address)
			}
		}
		if _, err := c.say(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, address := range first[1:] {
			n.raw(address, answer(address))
		}
		c.awaitReady(t, 5)
		time.Sleep(3 * time.Minute)
		synctest.Wait()
		if got, ready := awake(c), readyIn(c); got != 4 || ready != 3 {
			t.Errorf("%d awake, %d ready, want 3 ready and the dead one", got, ready)
		}
	})
}

// versionFilter admits instances of a version.
func versionFilter(version string, seen *atomic.Int64) grpc.ClientOption {
	return grpc.WithNodeFilter(func(_ context.Context, nodes []kselector.Node) []kselector.Node {
		seen.Add(int64(len(nodes)))
		var out []kselector.Node
		for _, n := range nodes {
			if n.Metadata()["track"] == version {
				out = append(out, n)
			}
		}
		return out
	})
}

// filteredFleet is 200 instances, of which the last few are of the canary track.
func filteredFleet(n *fakeNet, canaries int) *fakeDiscovery {
	var list []*kregistry.ServiceInstance
	for i := range 200 {
		id, track := fmt.Sprintf("i%03d", i), "stable"
		if i >= 200-canaries {
			track = "canary"
		}
		n.raw(id+":1", answer(track))
		list = append(list, instanceOf(id, id+":1", "track", track))
	}
	return newDiscovery(list...)
}

// What a filter refuses is no reason to connect to the whole fleet: only what
// it accepts is.
func TestFilterThatRefusesTheSubset(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		canaries, most int
		code           codes.Code
		kind           materpc.ErrorKind
	}{
		"nobody passes":   {0, 5, codes.Unavailable, materpc.NoInstance},
		"two pass":        {2, 7, codes.OK, materpc.NoError},
		"more than fifty": {60, 10, codes.OK, materpc.NoError},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				var seen atomic.Int64
				c := n.client("discovery:///greeter", grpc.WithDiscovery(filteredFleet(n, test.canaries)), grpc.WithSubset(5), versionFilter("canary", &seen))
				c.awaitReady(t, 5)
				for range 3 {
					server, err := c.say(t.Context())
					wantErr(t, err, test.code, test.kind)
					if err == nil && server != "canary" {
						t.Errorf("answered by %q", server)
					}
				}
				if got := awake(c); got > test.most {
					t.Errorf("%d of 200 instances awake, want at most %d", got, test.most)
				}
			})
		})
	}
}

// A filter that pins each call to another instance of the fleet reaches them
// all, one after the other, over a bounded number of connections.
func TestFilterThatPinsEachCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var wanted atomic.Pointer[string]
		c := n.client("discovery:///greeter", grpc.WithDiscovery(filteredFleet(n, 0)), grpc.WithSubset(5),
			grpc.WithNodeFilter(func(_ context.Context, nodes []kselector.Node) []kselector.Node {
				for _, node := range nodes {
					if node.Address() == *wanted.Load() {
						return []kselector.Node{node}
					}
				}
				return nil
			}))
		c.awaitReady(t, 5)
		for i := range 200 {
			address := fmt.Sprintf("i%03d:1", i)
			wanted.Store(&address)
			if _, err := c.say(t.Context()); err != nil {
				t.Fatalf("pinned to %s: %v", address, err)
			}
			if got := awake(c); got > 10 {
				t.Fatalf("%d awake, want at most 10", got)
			}
		}
		// What filters needed is let go of when they need it no more.
		time.Sleep(3 * time.Minute)
		if got := awake(c); got != 5 {
			t.Errorf("%d awake, want 5", got)
		}
	})
}

// What a filter needs all the time stays connected.
func TestFilterKeepsWhatItNeeds(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var seen atomic.Int64
		c := n.client("discovery:///greeter", grpc.WithDiscovery(filteredFleet(n, 2)), grpc.WithSubset(5), versionFilter("canary", &seen))
		c.awaitReady(t, 5)
		for range 30 {
			if server, err := c.say(t.Context()); err != nil || server != "canary" {
				t.Fatalf("%q, %v", server, err)
			}
			time.Sleep(10 * time.Second)
		}
		for _, canary := range []string{"i198:1", "i199:1"} { // one of them may be in the subset, and is then enough
			if got := n.dialed(canary); got > 1 {
				t.Errorf("%d dials of %s, want one at most", got, canary)
			}
		}
	})
}

// Instances that a filter accepts and nobody can reach fail a call, after a
// bounded number of tries.
func TestFilterAcceptsOnlyTheDead(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var seen atomic.Int64
		d := filteredFleet(n, 100)
		for i := 100; i < 200; i++ {
			_ = n.listeners[fmt.Sprintf("i%03d:1", i)].Close()
		}
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d), grpc.WithSubset(5), versionFilter("canary", &seen))
		synctest.Wait()
		for range 3 {
			before := n.allDials()
			_, err := c.say(t.Context())
			kind := materpc.GetConnection
			if readyIn(c) > 0 { // in the subset, refused by the filter
				kind = materpc.NoInstance
			}
			wantErr(t, err, codes.Unavailable, kind)
			if got := n.allDials() - before; got > 15 {
				t.Errorf("%d dials for one call, want at most 3 times the subset of 5", got)
			}
			if got := awake(c); got > 10 {
				t.Errorf("%d awake, want at most 10", got)
			}
		}
	})
}

// A call does not wait for connecting instances that its filter refuses.
func TestFilterDoesNotWaitForWhatItRefuses(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var seen atomic.Int64
		c := n.client("discovery:///greeter", grpc.WithDiscovery(filteredFleet(n, 20)), grpc.WithSubset(1), versionFilter("canary", &seen),
			grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
				if address < "i180:1" {
					time.Sleep(2 * time.Second)
				}
				return n.dialContext(ctx, address)
			})))
		began := time.Now()
		if server, err := c.say(t.Context()); err != nil || server != "canary" || time.Since(began) > 0 {
			t.Errorf("%q, %v after %v", server, err, time.Since(began))
		}
		time.Sleep(2 * time.Second) // the dialer does not look at its ctx
	})
}

// Calls at the same moment that are pinned to more instances than there are
// places end, and none of them in vain while places are free.
func TestFilterThatPinsManyCallsAtOnce(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		type pin struct{}
		c := n.client("discovery:///greeter", grpc.WithDiscovery(filteredFleet(n, 0)), grpc.WithSubset(20),
			grpc.WithNodeFilter(func(ctx context.Context, nodes []kselector.Node) []kselector.Node {
				return slices.DeleteFunc(slices.Clone(nodes), func(node kselector.Node) bool { return node.Address() != ctx.Value(pin{}) })
			}))
		c.awaitReady(t, 20)
		for round := range 10 {
			var calls sync.WaitGroup
			for i := range 15 {
				calls.Go(func() {
					address := fmt.Sprintf("i%03d:1", round*15+i)
					if _, err := c.say(context.WithValue(t.Context(), pin{}, address)); err != nil {
						t.Errorf("pinned to %s: %v", address, err)
					}
				})
			}
			calls.Wait()
			time.Sleep(time.Second)
			if got := awake(c); got > 40 {
				t.Errorf("%d awake, want at most 40", got)
			}
		}
	})
}

// A call that waits for an instance asks again when the list changes.
func TestFilterAcceptsAnInstanceThatComesLater(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var seen atomic.Int64
		d := filteredFleet(n, 0)
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d), grpc.WithSubset(5), versionFilter("canary", &seen))
		c.awaitReady(t, 5)
		done := make(chan error, 1)
		go func() {
			_, err := c.say(t.Context(), stdgrpc.WaitForReady(true))
			done <- err
		}()
		synctest.Wait()
		list, _, _ := d.read()
		for i := range 20 { // most of them are outside the subset
			id := fmt.Sprintf("c%d", i)
			n.raw(id+":1", answer("canary"))
			list = append(list, instanceOf(id, id+":1", "track", "canary"))
		}
		d.push(nil, list...)
		if err := <-done; err != nil || awake(c) > 10 {
			t.Errorf("%v, %d awake", err, awake(c))
		}
	})
}

// displacing pushes ever new instances until one takes the place of another in
// a subset of 2, and returns its address.
func displacing(t *testing.T, c *testClient, d *fakeDiscovery, list []*kregistry.ServiceInstance) (address string, all []*kregistry.ServiceInstance) {
	t.Helper()
	for i := range 100 {
		address = fmt.Sprintf("new%d:1", i)
		list = append(list, instanceOf(address, address))
		d.push(nil, list...)
		synctest.Wait()
		if v := c.fleet()[address]; !v.Dormant && v.Address != "" {
			return address, list
		}
	}
	t.Fatal("nobody came into the subset")
	return "", nil
}

// A newcomer takes an instance's place in the subset when it is READY, not
// before; and streams of the one it displaces end by themselves.
func TestDisplacingWaitsForTheNewcomer(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		var slow atomic.Bool
		list := []*kregistry.ServiceInstance{instanceOf("a", "a:1"), instanceOf("b", "b:1")}
		for _, in := range list {
			opener(n, in.ID+":1")
		}
		for i := range 100 {
			opener(n, fmt.Sprintf("new%d:1", i))
		}
		d := newDiscovery(list...)
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d), grpc.WithSubset(2), grpc.WithOptions(stdgrpc.WithContextDialer(func(ctx context.Context, address string) (net.Conn, error) {
			if slow.Load() {
				time.Sleep(2 * time.Second)
			}
			return n.dialContext(ctx, address)
		})), grpc.WithStrategy(inOrder{}))
		c.awaitReady(t, 2)
		ends := make(map[string]*atomic.Pointer[error])
		for _, address := range []string{"a:1", "b:1"} { // a stream on each
			weigh(t, c, d, list, address)
			ends[address] = watchEnd(openOn(t, c))
		}
		weigh(t, c, d, list, "")
		slow.Store(true)
		newcomer, all := displacing(t, c, d, list)
		if got := readyIn(c); got != 2 {
			t.Errorf("%d ready while %s connects, want 2 as before", got, newcomer)
		}
		time.Sleep(3 * time.Second)
		synctest.Wait()
		if got, ready := awake(c), readyIn(c); got != 2 || ready != 2 || !c.fleet()[newcomer].Ready {
			t.Errorf("%d awake, %d ready, newcomer %+v; want 2, 2, ready", got, ready, c.fleet()[newcomer])
		}
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		for address, end := range ends {
			if end.Load() != nil {
				t.Errorf("the stream on %s ended: %v", address, *end.Load())
			}
		}
		// The grace begins when discovery withdraws it.
		d.push(nil, all[2:]...)
		time.Sleep(29 * time.Second)
		for address, end := range ends {
			if end.Load() != nil {
				t.Errorf("the stream on %s ended within the grace: %v", address, *end.Load())
			}
		}
		time.Sleep(2 * time.Second)
		synctest.Wait()
		for address, end := range ends {
			if end.Load() == nil || materpc.KindOf(*end.Load()) != materpc.ConnectionLost {
				t.Errorf("the stream on %s did not end after the grace", address)
			}
		}
		if got := grpc.Leaving(c.conn); got != 0 {
			t.Errorf("%d leaving", got)
		}
	})
}

// weigh gives weight to one of the instances only, or to all.
func weigh(t *testing.T, c *testClient, d *fakeDiscovery, list []*kregistry.ServiceInstance, address string) {
	t.Helper()
	weighed := make([]*kregistry.ServiceInstance, 0, len(list))
	for _, in := range list {
		weight := "0"
		if address == "" || in.ID+":1" == address {
			weight = "100"
		}
		weighed = append(weighed, instanceOf(in.ID, in.ID+":1", "weight", weight))
	}
	d.push(nil, weighed...)
	synctest.Wait()
	for _, in := range weighed {
		if got := c.fleet()[in.ID+":1"]; fmt.Sprint(got.Weight) != in.Metadata["weight"] {
			t.Fatalf("%+v, want weight %s", got, in.Metadata["weight"])
		}
	}
}

// A newcomer that nobody can reach displaces nobody.
func TestNewcomerThatFailsDisplacesNobody(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		list := []*kregistry.ServiceInstance{instanceOf("a", "a:1"), instanceOf("b", "b:1")}
		a, b := opener(n, "a:1"), opener(n, "b:1")
		d := newDiscovery(list...)
		c := n.client("discovery:///greeter", grpc.WithDiscovery(d), grpc.WithSubset(2))
		c.awaitReady(t, 2)
		newcomer, _ := displacing(t, c, d, list)
		time.Sleep(10 * time.Minute)
		synctest.Wait()
		if got := readyIn(c); got != 2 || a.accepted.Load() != 1 || b.accepted.Load() != 1 {
			t.Errorf("%d ready, %d and %d connections; want 2, 1, 1", got, a.accepted.Load(), b.accepted.Load())
		}
		opener(n, newcomer)
		time.Sleep(15 * time.Second) // the longest backoff
		synctest.Wait()
		if got := readyIn(c); got != 2 || !c.fleet()[newcomer].Ready {
			t.Errorf("%d ready, want 2", got)
		}
	})
}
