package grpc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"google.golang.org/grpc/balancer"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// maxInFlight is how many calls a client keeps on one connection: grpc-go
// would queue what exceeds the server's limit inside the picked connection.
const maxInFlight = 1000

// picker chooses an instance. It is immutable; what changes between two sets
// of instances are atomics in the nodes and the fleet. It runs on the call
// path: no lock of ours and no allocation.
type picker struct {
	fleet     *fleet
	client    *client
	found     *found
	instances []*instance // the active ones
	nodes     []*selector.Node
	asked     map[*instance]bool // of the active ones, those that only filters need
	list      uint32             // the number of the list, from 1
	strategy  selector.Picker
}

// Pick implements balancer.Picker. It returns plain errors: status errors end
// WaitForReady calls too, which only the end of replays may. The kind is left in
// the record.
func (p *picker) Pick(info balancer.PickInfo) (balancer.PickResult, error) {
	a, ok := info.Ctx.Value(attemptKey{}).(*attempt)
	if !ok || a.call.client != p.client {
		return p.ungoverned(info)
	}
	if err := a.replay(); err != nil {
		a.failed(a.moves.replayed, err)
		return balancer.PickResult{}, err
	}
	r := &a.request
	r.Now = a.pickTime()
	if len(p.client.filters) > 0 || p.client.hashKey != nil {
		if err := p.prepare(info.Ctx, a); err != nil {
			return balancer.PickResult{}, err
		}
	}
	node := p.strategy.Pick(r)
	if node == nil || node.InFlight()+node.OpenStreams() >= maxInFlight {
		var err error
		if node, err = p.search(info.Ctx, a, node); err != nil {
			return balancer.PickResult{}, err
		}
	}
	in, ok := node.Owner().(*instance)
	if !ok {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	a.begin(in, r.Now)
	return balancer.PickResult{SubConn: in.subConn, Done: p.client.doneFunc(a)}, nil
}

// prepare evaluates what users attached to the client: Kratos NodeFilters and
// the hash key.
func (p *picker) prepare(ctx context.Context, a *attempt) error {
	if key := p.client.hashKey; key != nil {
		guard(func() {
			text := key(ctx)
			a.request.Hash, a.request.HasHash = selector.HashKey(text), text != ""
		})
	}
	return p.filter(ctx, a)
}

// filter evaluates Kratos NodeFilters, if there are any.
func (p *picker) filter(ctx context.Context, a *attempt) error {
	if len(p.client.filters) == 0 {
		return nil
	}
	ready := make([]*selector.Node, 0, len(p.nodes))
	for _, node := range p.nodes {
		if node.Ready() {
			ready = append(ready, node)
		}
	}
	filter, err := selector.KratosFilter(ctx, ready, p.client.filters...)
	if err != nil {
		a.failed(materpc.NoInstance, err)
		return err
	}
	a.request.Filter = filter
	if filter != nil {
		p.noteNeed(a.request.Now, ready, filter)
	}
	return nil
}

// search is the slow path: the strategy found nothing, or a full connection.
func (p *picker) search(ctx context.Context, a *attempt, full *selector.Node) (*selector.Node, error) {
	if full != nil {
		r := a.request
		r.Filter = func(n *selector.Node) bool {
			return n.InFlight()+n.OpenStreams() < maxInFlight && (a.request.Filter == nil || a.request.Filter(n))
		}
		if node := p.strategy.Pick(&r); node != nil {
			return node, nil
		}
		return full, nil // all are full: grpc-go queues, which beats failing
	}
	if node := p.again(a); node != nil {
		return node, nil
	}
	wait, err := p.accepted(ctx, a)
	if err == nil && !wait {
		// Between the pick and this look the last connecting one may have become READY.
		if err = p.filter(ctx, a); err == nil {
			if node := p.strategy.Pick(&a.request); node != nil {
				return node, nil
			}
			wait, err = p.more(ctx, a)
		}
	}
	switch {
	case err != nil:
		return nil, err
	case wait:
		a.waited = true
		return nil, balancer.ErrNoSubConnAvailable
	}
	kind, err := p.explain(a)
	a.failed(kind, err)
	return nil, err
}

// again picks an instance that was tried: a connection refusal speaks of a
// connection, and a single replica must not be worse off than with raw
// grpc-go. Once a call, and only when no untried one is left.
func (p *picker) again(a *attempt) *selector.Node {
	if !a.moves.again || a.moves.usedAgain || p.untriedWaiting(a) {
		return nil
	}
	r := a.request
	r.Tried = a.barred
	return p.strategy.Pick(&r)
}

// worthWaiting reports whether an instance that the call may use is connecting
// for the first time. Failing ones stay failing while they connect again, or
// every fail-fast call would block.
func (p *picker) worthWaiting(a *attempt) bool {
	if p.untriedWaiting(a) {
		return true
	}
	if !a.moves.again || a.moves.usedAgain {
		return false
	}
	for _, in := range p.instances {
		if in.state.Load() == waiting && in.node.Weight() > 0 && !a.barred.Has(in.node) {
			return true
		}
	}
	return false
}

// accepted is worthWaiting for clients with filters too: an instance that they
// refuse is not worth waiting for.
func (p *picker) accepted(ctx context.Context, a *attempt) (bool, error) {
	if worth := p.worthWaiting(a); !worth || len(p.client.filters) == 0 {
		return worth, nil
	}
	var connecting []*selector.Node
	for _, in := range p.instances {
		if in.state.Load() == waiting && in.node.Weight() > 0 && !a.barred.Has(in.node) {
			connecting = append(connecting, in.node)
		}
	}
	accepts, err := selector.KratosFilter(ctx, connecting, p.client.filters...)
	if err != nil {
		a.failed(materpc.NoInstance, err)
		return false, err
	}
	return slices.ContainsFunc(connecting, accepts), nil
}

func (p *picker) untriedWaiting(a *attempt) bool {
	if p.fleet.counts[waiting].Load() == 0 {
		return false
	}
	for _, in := range p.instances {
		if in.state.Load() == waiting && in.node.Weight() > 0 && !a.call.tried.Has(in.node) {
			return true
		}
	}
	return false
}

// offers reports whether a call that was refused has somewhere to go.
func (f *fleet) offers(a *attempt) bool {
	p := f.picker.Load()
	for _, in := range p.instances {
		if in.state.Load() == ready && in.node.Weight() > 0 && !a.call.tried.Has(in.node) {
			return true
		}
	}
	if a.moves.again && !a.moves.usedAgain {
		for _, in := range p.instances {
			if in.state.Load() == ready && in.node.Weight() > 0 && !a.barred.Has(in.node) {
				return true
			}
		}
	}
	return p.worthWaiting(a) || f.counts[dormant].Load() > 0
}

// explain says why there is nothing to pick.
func (p *picker) explain(a *attempt) (materpc.ErrorKind, error) {
	name := p.client.target.name
	switch {
	case len(p.instances) == 0 && p.found.err != nil:
		return materpc.ServiceDiscovery, fmt.Errorf("materpc: discovery of %q cannot be read: %w", name, p.found.err)
	case len(p.instances) == 0:
		return materpc.NoInstance, fmt.Errorf("materpc: discovery knows no instance of %q with scheme %s", name, p.client.scheme)
	case !p.weighs():
		return materpc.NoInstance, fmt.Errorf("materpc: all %d instances of %q have weight 0", len(p.instances), name)
	case p.fleet.counts[ready].Load() > 0:
		return materpc.NoInstance, fmt.Errorf("materpc: no instance of %q is left for this call: tried %d, the others have weight 0 or are filtered out",
			name, a.call.tried.Len())
	}
	if err := p.fleet.lastCause(); err != nil {
		return materpc.GetConnection, fmt.Errorf("materpc: no connection to any of %d instances of %q, last: %w", len(p.instances), name, err)
	}
	return materpc.GetConnection, fmt.Errorf("materpc: all %d instances of %q are draining", len(p.instances), name)
}

// weighs reports whether any instance may be picked at all.
func (p *picker) weighs() bool {
	return slices.ContainsFunc(p.instances, func(in *instance) bool { return in.node.Weight() > 0 })
}

func (f *fleet) lastCause() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.table {
		if in.state.Load() == failing && in.cause != nil {
			return in.cause
		}
	}
	return nil
}

var errUngoverned = errors.New("materpc: no instance is ready")

// ungoverned serves a call that reached the balancer without our state: an
// event, never silent.
func (p *picker) ungoverned(info balancer.PickInfo) (balancer.PickResult, error) {
	p.client.observers.emit(materpc.Event{Type: materpc.Ungoverned, Detail: info.FullMethodName})
	node := p.strategy.Pick(&selector.Request{Now: p.client.now()})
	if node == nil {
		if p.fleet.counts[waiting].Load() > 0 {
			return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
		}
		return balancer.PickResult{}, errUngoverned
	}
	in, ok := node.Owner().(*instance)
	if !ok {
		return balancer.PickResult{}, balancer.ErrNoSubConnAvailable
	}
	return balancer.PickResult{SubConn: in.subConn}, nil
}
