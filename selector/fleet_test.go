package selector_test

import (
	"context"
	"fmt"
	"testing"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/chash"
	"github.com/materpc/materpc/selector/p2c"
	"github.com/materpc/materpc/selector/random"
	"github.com/materpc/materpc/selector/wrr"
)

func strategies() []selector.Strategy {
	return []selector.Strategy{p2c.Strategy(), wrr.Strategy(), random.Strategy(), chash.Strategy(), chash.Strategy(chash.Replicas(3))}
}

// label tells the two chash strategies of the list apart.
func label(i int, s selector.Strategy) string { return fmt.Sprintf("%d-%s", i, s.Name()) }

func newNode(address string, weight int64) *selector.Node {
	n := selector.NewNode(&selector.Instance{ID: "id-" + address, Address: address, Weight: weight}, 1)
	n.SetReady(true)
	return n
}

func newNodes(count int, weight func(int) int64) []*selector.Node {
	nodes := make([]*selector.Node, count)
	for i := range nodes {
		nodes[i] = newNode(fmt.Sprintf("10.0.%d.%d:9000", i/256, i%256), weight(i))
	}
	return nodes
}

func equalWeight(int) int64 { return 100 }

func kratosNode(address, weight string) kselector.Node {
	return kselector.NewNode("grpc", address, &kregistry.ServiceInstance{
		ID: address, Name: "svc", Version: "v1", Metadata: map[string]string{"weight": weight},
	})
}

func kratosNodes(addresses ...string) []kselector.Node {
	nodes := make([]kselector.Node, len(addresses))
	for i, a := range addresses {
		nodes[i] = kratosNode(a, "100")
	}
	return nodes
}

// look reads the nodes behind a Kratos selector, by address, through a filter.
func look(t *testing.T, s kselector.Selector) map[string]*selector.Node {
	t.Helper()
	seen := make(map[string]*selector.Node)
	spy := func(_ context.Context, nodes []kselector.Node) []kselector.Node {
		for _, k := range nodes {
			n, ok := selector.FromKratos(k)
			if !ok {
				t.Errorf("filter got %T, want one of ours", k)
				continue
			}
			seen[k.Address()] = n
		}
		return nil
	}
	if _, _, err := s.Select(t.Context(), kselector.WithNodeFilter(spy)); !kselectorNone(err) {
		t.Fatalf("Select with a filter that passes none: got %v, want ErrNoAvailable", err)
	}
	return seen
}

func kselectorNone(err error) bool { return kselector.ErrNoAvailable.Is(err) }

func mustSelect(t *testing.T, ctx context.Context, s kselector.Selector) (string, kselector.DoneFunc) {
	t.Helper()
	n, done, err := s.Select(ctx)
	if err != nil {
		t.Fatalf("Select: %v", err)
	}
	return n.Address(), done
}

func within(t *testing.T, what string, got, low, high int) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: got %d, want %d to %d", what, got, low, high)
	}
}
