package selector_test

import (
	"context"
	"testing"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	kselector "github.com/go-kratos/kratos/v2/selector"
	"github.com/go-kratos/kratos/v2/selector/filter"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/p2c"
	"github.com/materpc/materpc/selector/wrr"
)

// connNode is how Kratos's transport wraps its nodes: Select must return the
// very value that Apply was given.
type connNode struct {
	kselector.Node
	conn int
}

func TestSelectReturnsTheAppliedNode(t *testing.T) {
	s := p2c.New()
	s.Apply([]kselector.Node{&connNode{kratosNode("a", "100"), 1}})
	s.Apply([]kselector.Node{&connNode{kratosNode("a", "100"), 2}}) // reconnected
	peer := &kselector.Peer{}
	n, done, err := s.Select(kselector.NewPeerContext(t.Context(), peer))
	if err != nil {
		t.Fatal(err)
	}
	done(t.Context(), kselector.DoneInfo{})
	if c, ok := n.(*connNode); !ok || c.conn != 2 {
		t.Errorf("got %#v, want the node of the second Apply", n)
	}
	if peer.Node != n {
		t.Errorf("peer: got %v, want the selected node", peer.Node)
	}
}

func TestNodeFiltersAreHonoured(t *testing.T) {
	newer := func(context.Context, []kselector.Node) []kselector.Node { return nil }
	tests := []struct {
		name    string
		filters []kselector.NodeFilter
		reason  string
	}{
		{"version that exists", []kselector.NodeFilter{filter.Version("v1")}, ""},
		{"version that does not", []kselector.NodeFilter{filter.Version("v2")}, kselector.ErrNoAvailable.Reason},
		{"one after the other", []kselector.NodeFilter{filter.Version("v1"), newer}, kselector.ErrNoAvailable.Reason},
		{"nil", []kselector.NodeFilter{nil}, ""},
		{"invents nodes", []kselector.NodeFilter{func(context.Context, []kselector.Node) []kselector.Node {
			return kratosNodes("x")
		}}, kselector.ErrNoAvailable.Reason},
		{"panics", []kselector.NodeFilter{func(context.Context, []kselector.Node) []kselector.Node { panic("boom") }}, "NODE_FILTER_PANIC"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := wrr.New()
			s.Apply(kratosNodes("a", "b"))
			n, _, err := s.Select(t.Context(), kselector.WithNodeFilter(tt.filters...))
			if got := kerrors.Reason(err); got != tt.reason {
				t.Fatalf("reason: got %q (%v), want %q", got, err, tt.reason)
			}
			if (n != nil) != (err == nil) {
				t.Errorf("got node %v with error %v", n, err)
			}
		})
	}
}

func TestFiltersSeeTheInstance(t *testing.T) {
	s := p2c.New()
	s.Apply([]kselector.Node{kratosNode("a", "70")})
	for _, n := range look(t, s) {
		k, weighted := n.Kratos().(kselector.WeightedNode)
		if !weighted || *k.InitialWeight() != 70 || k.Scheme() != "grpc" || k.ServiceName() != "svc" ||
			k.Version() != "v1" || k.Metadata()["weight"] != "70" || k.Raw().Address() != "a" || k.Weight() <= 0 {
			t.Errorf("got %+v, want the applied instance as a weighted node", n.Instance())
		}
	}
}

func TestReturningNodeIsNew(t *testing.T) {
	s := p2c.New()
	s.Apply(kratosNodes("a", "b"))
	ctx, filterA := t.Context(), func(_ context.Context, nodes []kselector.Node) []kselector.Node {
		for _, n := range nodes {
			if n.Address() == "a" {
				return []kselector.Node{n}
			}
		}
		return nil
	}
	_, late, err := s.Select(ctx, kselector.WithNodeFilter(filterA))
	if err != nil {
		t.Fatal(err)
	}
	before := look(t, s)
	s.Apply(kratosNodes("b"))
	s.Apply(kratosNodes("a", "b"))
	late(ctx, kselector.DoneInfo{Err: status.Error(codes.Unavailable, "")})
	after := look(t, s)
	if after["b"] != before["b"] {
		t.Error("b stayed and lost its statistics")
	}
	if after["a"] == before["a"] {
		t.Error("a left and returned as the same node")
	}
	if st := after["a"].Stats(); st.Results != 0 || st.InFlight != 0 || st.Success != 1 {
		t.Errorf("the late result reached the new node: %+v", st)
	}
}

type idNode struct {
	kselector.Node
	id string
}

func (n idNode) ID() string { return n.id }

func TestIdentityIsAddressAndID(t *testing.T) {
	s := wrr.New()
	s.Apply([]kselector.Node{idNode{kratosNode("a", "100"), "1"}, nil, idNode{kratosNode("a", "100"), "1"}})
	first := look(t, s)["a"]
	s.Apply([]kselector.Node{idNode{kratosNode("a", "100"), "2"}})
	if second := look(t, s)["a"]; second == first {
		t.Error("same address, new id: got the old node")
	}
}

func TestBadWeightsInApply(t *testing.T) {
	s := wrr.New()
	s.Apply([]kselector.Node{kratosNode("a", "-3"), kratosNode("b", "many"), kratosNode("c", "0")})
	want := map[string]int64{"a": selector.DefaultWeight, "b": selector.DefaultWeight, "c": 0}
	for a, n := range look(t, s) {
		if n.Weight() != want[a] {
			t.Errorf("weight of %s: got %d, want %d", a, n.Weight(), want[a])
		}
	}
}

func TestEndedContextDoesNotMatter(t *testing.T) {
	s := p2c.New()
	s.Apply(kratosNodes("a"))
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, _, err := s.Select(ctx); err != nil {
		t.Errorf("Select: got %v, want a node", err)
	}
}

func TestTriedContextPrefersUntried(t *testing.T) {
	s := p2c.New()
	s.Apply(kratosNodes("a", "b", "c"))
	tried := &selector.Tried{}
	ctx := selector.NewTriedContext(t.Context(), tried)
	seen := make(map[string]bool)
	for range 3 {
		node, _ := mustSelect(t, ctx, s)
		seen[node] = true
	}
	if len(seen) != 3 || tried.Len() != 3 {
		t.Errorf("3 attempts went to %v, tried %d nodes; want 3", seen, tried.Len())
	}
	mustSelect(t, ctx, s) // all tried: one of them again
}

func TestHooksThatPanicAreContained(t *testing.T) {
	s := selector.NewBuilder(p2c.Strategy(),
		selector.KeyFunc(func(context.Context) string { panic("key") }),
		selector.LoadFunc(func(context.Context) selector.Load { panic("load") }),
		selector.OutcomeFunc(func(error) selector.Outcome { panic("outcome") })).Build()
	s.Apply(kratosNodes("a"))
	_, done := mustSelect(t, t.Context(), s)
	done(t.Context(), kselector.DoneInfo{})
	n := look(t, s)["a"]
	if n.InFlight() != 0 || n.Stats().Results != 0 {
		t.Errorf("got %+v, want no call in flight and nothing learned", n.Stats())
	}
}

func TestSelectAllocations(t *testing.T) {
	s := p2c.New()
	s.Apply(kratosNodes("a", "b", "c"))
	ctx := t.Context()
	// The call's record and its done; Kratos's own p2c has 2 as well.
	if got := testing.AllocsPerRun(1000, func() {
		_, done, _ := s.Select(ctx)
		done(ctx, kselector.DoneInfo{})
	}); got > 2 {
		t.Errorf("allocations per Select: got %v, want at most 2", got)
	}
}
