package selector

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	kselector "github.com/go-kratos/kratos/v2/selector"
)

// adapter is a Kratos selector around a strategy.
type adapter struct {
	strategy Strategy
	options  *options
	epoch    time.Time

	mu    sync.Mutex // serialises Apply
	table atomic.Pointer[table]
}

var _ kselector.Selector = (*adapter)(nil)

// table is what one Apply left; it is immutable.
type table struct {
	nodes  []*Node
	byID   map[identity]*Node
	picker Picker
}

type identity struct{ id, address string }

func newAdapter(s Strategy, o *options) *adapter {
	a := &adapter{strategy: s, options: o, epoch: time.Now()}
	a.table.Store(&table{picker: s.Build(nil, nil)})
	return a
}

// now is the monotonic clock of all nodes of the adapter.
func (a *adapter) now() int64 { return int64(time.Since(a.epoch)) }

// Apply replaces the set of nodes. Of two nodes with one identity the last
// counts; nil nodes are skipped.
func (a *adapter) Apply(nodes []kselector.Node) {
	a.mu.Lock()
	defer a.mu.Unlock()
	old := a.table.Load()
	next := &table{byID: make(map[identity]*Node, len(nodes)), nodes: make([]*Node, 0, len(nodes))}
	now := a.now()
	for _, raw := range nodes {
		if raw == nil {
			continue
		}
		in := fromKratos(raw)
		key := identity{in.ID, in.Address}
		n := next.byID[key]
		if n == nil {
			if n = old.byID[key]; n == nil {
				n = NewNode(in, now)
			}
			next.byID[key] = n
			next.nodes = append(next.nodes, n)
		}
		n.Update(in)
		n.SetOwner(raw)
		n.SetReady(true) // Kratos applies nodes that are connected
	}
	next.picker = a.strategy.Build(next.nodes, old.picker)
	a.table.Store(next)
}

// Select picks a node and fills the Peer of ctx. It fails with Kratos's
// ErrNoAvailable when no node is left, never because ctx has ended. The
// DoneFunc works once, further calls do nothing.
func (a *adapter) Select(ctx context.Context, opts ...kselector.SelectOption) (kselector.Node, kselector.DoneFunc, error) {
	t := a.table.Load()
	c := &call{adapter: a, load: a.options.loadOf(ctx)}
	if err := a.describe(ctx, t, &c.request, opts); err != nil {
		return nil, nil, err
	}
	tried := c.request.Tried
	c.node = t.picker.Pick(&c.request)
	if c.node == nil && tried != nil {
		c.request.Tried = nil // nothing untried left: better a second call than none
		c.node = t.picker.Pick(&c.request)
	}
	if c.node == nil {
		return nil, nil, kselector.ErrNoAvailable
	}
	if tried != nil {
		tried.Add(c.node)
	}
	c.request.Filter = nil // holds a list of all nodes
	c.node.Begin(c.request.Now, c.load)
	raw := c.node.raw()
	if p, ok := kselector.FromPeerContext(ctx); ok && p != nil {
		p.Node = raw
	}
	return raw, c.done, nil
}

// describe fills the request of a call.
func (a *adapter) describe(ctx context.Context, t *table, r *Request, opts []kselector.SelectOption) (err error) {
	r.Now, r.Tried = a.now(), TriedFromContext(ctx)
	if key := a.options.keyOf(ctx); key != "" {
		r.Hash, r.HasHash = HashKey(key), true
	}
	if len(opts) == 0 {
		return nil
	}
	var so kselector.SelectOptions
	for _, opt := range opts {
		opt(&so)
	}
	r.Filter, err = KratosFilter(ctx, t.nodes, so.NodeFilters...)
	return err
}

// call is one selected node until its done.
type call struct {
	adapter *adapter
	node    *Node
	request Request
	load    Load
	ended   atomic.Bool
}

func (c *call) done(_ context.Context, info kselector.DoneInfo) {
	if c.ended.Swap(true) {
		return
	}
	c.node.End(c.adapter.now(), c.request.Now, c.load, c.adapter.options.outcomeOf(info.Err))
}
