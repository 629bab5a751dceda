package grpc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector/chash"
	"github.com/materpc/materpc/transport/grpc"
)

var errStop = errors.New("not sent")

// insideAttempt runs fn where a pick of a governed call is possible.
func insideAttempt(fn func(context.Context, *stdgrpc.ClientConn)) grpc.ClientOption {
	return grpc.WithUnaryInterceptor(func(ctx context.Context, _ string, _, _ any, cc *stdgrpc.ClientConn, _ stdgrpc.UnaryInvoker, _ ...stdgrpc.CallOption) error {
		fn(ctx, cc)
		return errStop
	})
}

func TestPickAllocs(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	l := plainServer(t)
	ran := false
	c := ourClient(t, l, insideAttempt(func(ctx context.Context, cc *stdgrpc.ClientConn) {
		pick := grpc.PickerOf(ctx, cc)
		if err := pick(); err != nil {
			t.Error(err)
		}
		ran = true
		if got := testing.AllocsPerRun(1000, func() { _ = pick() }); got > 0 {
			t.Errorf("a pick allocates %v times, Done included; want 0", got)
		}
	}))
	c.awaitReady(t, 1)
	_, _ = c.say(t.Context())
	if !ran {
		t.Error("nothing was measured")
	}
}

// BenchmarkPick is a pick among n instances of which n are READY, Done included.
func BenchmarkPick(b *testing.B) {
	for _, n := range []int{1, 10, 1000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			net := newNet(b)
			var addresses []string
			for i := range n {
				addresses = append(addresses, fmt.Sprintf("s%d:1", i))
				net.raw(addresses[i], func(*rawStream) {})
			}
			c := net.client("direct:///"+strings.Join(addresses, ","), grpc.WithSubset(0), insideAttempt(func(ctx context.Context, cc *stdgrpc.ClientConn) {
				pick := grpc.PickerOf(ctx, cc)
				b.ReportAllocs()
				for b.Loop() {
					_ = pick()
				}
			}))
			c.awaitReady(b, n)
			_, _ = c.say(b.Context())
		})
	}
}

func tenThousand(changed int, weight string) []*kregistry.ServiceInstance {
	list := make([]*kregistry.ServiceInstance, 10_000)
	for i := range list {
		list[i] = instanceOf(fmt.Sprint("id", i), fmt.Sprintf("10.0.%d.%d:9000", i/256, i%256), "weight", "100", "zone", "z")
		if i == changed {
			list[i].Metadata["weight"] = weight
		}
	}
	return list
}

// BenchmarkPush10000 pushes 10,000 instances of which one has another weight.
func BenchmarkPush10000(b *testing.B) {
	c := newNet(b).client("discovery:///greeter", grpc.WithDiscovery(newDiscovery(tenThousand(0, "1")...)))
	await(b, "the first list", func() bool { return len(grpc.FleetView(c.conn)) == 10_000 })
	push := grpc.PushTo(c.conn)
	first := tenThousand(7, "50")
	second := slices.Clone(first) // a hub keeps the pointers of what is unchanged
	second[7] = tenThousand(7, "60")[7]
	lists := [2][]*kregistry.ServiceInstance{first, second}
	for i := 0; b.Loop(); i++ {
		push(lists[i%2])
	}
	if perPush := b.Elapsed() / time.Duration(b.N); perPush > 10*time.Millisecond {
		b.Logf("%v a push: over the budget of 10 ms", perPush)
	}
}

// A changed weight among 10,000 re-dials nothing.
func TestPush10000DialsNothingAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		c := n.client("discovery:///greeter", grpc.WithDiscovery(newDiscovery(tenThousand(0, "1")...)))
		synctest.Wait()
		for _, v := range grpc.FleetView(c.conn) {
			if !v.Dormant {
				n.raw(v.Address, answer(v.Address))
			}
		}
		c.awaitReady(t, 25)
		before := n.allDials()
		push := grpc.PushTo(c.conn)
		for range 5 {
			push(tenThousand(7, "50"))
			push(tenThousand(7, "60"))
		}
		synctest.Wait()
		if after := n.allDials(); after != before {
			t.Errorf("%d dials became %d", before, after)
		}
		if _, err := c.say(t.Context()); err != nil {
			t.Error(err)
		}
	})
}

func TestNodeFilterAndHashKey(t *testing.T) {
	t.Parallel()
	type key struct{}
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		for _, address := range []string{"a:1", "b:1", "c:1"} {
			n.raw(address, answer(address))
		}
		onlyB := func(_ context.Context, nodes []kselector.Node) []kselector.Node {
			var kept []kselector.Node
			for _, node := range nodes {
				if node.Address() == "b:1" {
					kept = append(kept, node)
				}
			}
			return kept
		}
		c := n.client("direct:///a:1,b:1,c:1", grpc.WithNodeFilter(onlyB))
		c.awaitReady(t, 3)
		for range 10 {
			if server, err := c.say(t.Context()); err != nil || server != "b:1" {
				t.Fatalf("%q, %v", server, err)
			}
		}
		none := n.client("direct:///a:1,b:1,c:1", grpc.WithNodeFilter(func(context.Context, []kselector.Node) []kselector.Node { return nil }))
		none.awaitReady(t, 3)
		_, err := none.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.NoInstance)

		hashed := n.client("direct:///a:1,b:1,c:1", grpc.WithStrategy(chash.Strategy()), grpc.WithHashKey(func(ctx context.Context) string {
			text, _ := ctx.Value(key{}).(string)
			return text
		}))
		hashed.awaitReady(t, 3)
		homes := make(map[string]bool)
		for i := range 30 {
			ctx := context.WithValue(t.Context(), key{}, fmt.Sprint("user", i))
			first, err := hashed.say(ctx)
			if err != nil {
				t.Fatal(err)
			}
			if again, _ := hashed.say(ctx); again != first {
				t.Errorf("user%d went to %s, then to %s", i, first, again)
			}
			homes[first] = true
		}
		if len(homes) != 3 {
			t.Errorf("homes %v", homes)
		}
	})
}
