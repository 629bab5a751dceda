package selector

import (
	"context"
	"fmt"
	"time"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	kselector "github.com/go-kratos/kratos/v2/selector"
)

// kratosNode is a Node seen as a Kratos node; the conversion allocates nothing.
type kratosNode Node

var _ kselector.WeightedNode = (*kratosNode)(nil)

// Kratos presents the node as a Kratos node, for NodeFilters and
// selector.Peer. It is always the same value for one node, is also a
// selector.WeightedNode, and has a method ID() string.
func (n *Node) Kratos() kselector.Node { return (*kratosNode)(n) }

// FromKratos returns the node behind a value of Node.Kratos; false when k is
// something else.
func FromKratos(k kselector.Node) (*Node, bool) {
	n, ok := k.(*kratosNode)
	return (*Node)(n), ok
}

// raw is the node as Kratos gave it to Apply; our own view for others.
func (n *Node) raw() kselector.Node {
	if k, ok := n.Owner().(kselector.Node); ok {
		return k
	}
	return n.Kratos()
}

func (k *kratosNode) node() *Node     { return (*Node)(k) }
func (k *kratosNode) in() *Instance   { return k.node().Instance() }
func (k *kratosNode) ID() string      { return k.in().ID }
func (k *kratosNode) Scheme() string  { return k.in().Scheme }
func (k *kratosNode) Address() string { return k.in().Address }

func (k *kratosNode) ServiceName() string         { return k.in().Service }
func (k *kratosNode) Version() string             { return k.in().Version }
func (k *kratosNode) Metadata() map[string]string { return k.in().Metadata }

// InitialWeight is a copy: whoever writes through it changes nothing.
func (k *kratosNode) InitialWeight() *int64 {
	weight := k.node().Weight()
	return &weight
}

// Raw, Weight, Pick and PickElapsed make filters work that expect the weighted
// nodes of Kratos's own selector.
func (k *kratosNode) Raw() kselector.Node { return k.node().raw() }
func (k *kratosNode) Weight() float64     { return k.node().Stats().Effective() }

// Pick counts nothing: only the selector itself picks.
func (k *kratosNode) Pick() kselector.DoneFunc {
	return func(context.Context, kselector.DoneInfo) {}
}

// PickElapsed is unknown here, since the clock is the table owner's.
func (k *kratosNode) PickElapsed() time.Duration { return 0 }

// fromKratos describes a node that Kratos made. A weight that is absent or
// below 0 is DefaultWeight, as FromService has it.
func fromKratos(k kselector.Node) *Instance {
	in := &Instance{
		Service: k.ServiceName(), Version: k.Version(), Scheme: k.Scheme(), Address: k.Address(),
		Weight: DefaultWeight, Metadata: k.Metadata(),
	}
	if w := k.InitialWeight(); w != nil && *w >= 0 {
		in.Weight = *w
	}
	if withID, ok := k.(interface{ ID() string }); ok {
		in.ID = withID.ID()
	}
	return in
}

// KratosFilter runs Kratos NodeFilters over nodes, one after the other, and
// returns the condition for Request.Filter: nil without filters. Values that a
// filter invents are ignored; a filter that panics fails the call with the
// error. It allocates and takes time linear in nodes, as in Kratos.
func KratosFilter(ctx context.Context, nodes []*Node, filters ...kselector.NodeFilter) (filter func(*Node) bool, err error) {
	if len(filters) == 0 {
		return nil, nil
	}
	defer func() {
		if p := recover(); p != nil {
			err = kerrors.InternalServer("NODE_FILTER_PANIC", fmt.Sprintf("selector: a node filter panicked: %v", p))
		}
	}()
	list := make([]kselector.Node, len(nodes))
	for i, n := range nodes {
		list[i] = n.Kratos()
	}
	for _, f := range filters {
		if f != nil {
			list = f(ctx, list)
		}
	}
	passed := make(map[*Node]struct{}, len(list))
	for _, k := range list {
		if n, ok := FromKratos(k); ok {
			passed[n] = struct{}{}
		}
	}
	return func(n *Node) bool {
		_, ok := passed[n]
		return ok
	}, nil
}
