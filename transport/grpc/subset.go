package grpc

import (
	"cmp"
	"context"
	"slices"
	"time"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// A client connects to the first instances in an order of its own, the subset.
// Beyond it are awake:
//
//   - the next ones in that order, when calls found nothing to use in the
//     subset (widened);
//   - those that a user's filter accepts, when it refuses all the others
//     (asked): at most as many as the subset;
//   - those that were in the subset and stand in for a newcomer that is not
//     READY yet: there are never fewer usable instances than before.
//
// What is no longer needed goes back to sleep, and its calls end by themselves.

// shrinkAfter is how long a subset must have worked before the client lets go
// of what it took in beyond it. It is a multiple of the longest backoff (10 s):
// a failing instance had several tries to come back, and one outage makes the
// client shrink once.
const shrinkAfter = time.Minute

// usable reports whether calls may go to the instance now.
func (in *instance) usable() bool { return in.state.Load() == ready && in.node.Weight() > 0 }

// ranked are all instances in the client's order.
func (f *fleet) ranked() []*instance {
	all := make([]*instance, 0, len(f.table))
	for _, in := range f.table {
		all = append(all, in)
	}
	slices.SortFunc(all, byRank)
	return all
}

func byRank(a, b *instance) int { return cmp.Compare(a.rank, b.rank) }

// choose returns the instances to connect to, and sends the others to sleep.
func (f *fleet) choose() []*instance {
	all := f.ranked()
	f.standIns = 0
	limit := f.client.subset + f.widened
	if f.client.subset == 0 || limit >= len(all) {
		return all
	}
	active, missing := all[:limit:limit], f.client.subset
	for _, in := range active {
		in.asked = false
		if in.usable() {
			missing--
		}
	}
	for _, in := range all[limit:] {
		switch {
		case in.asked:
			active = append(active, in)
		case in.usable() && f.standIns < missing:
			f.standIns++
			active = append(active, in)
		default:
			f.sleep(in)
		}
	}
	return active
}

// settle is called when an instance has become READY: those that stood in for
// it may go.
func (f *fleet) settle() {
	if f.standIns > 0 {
		f.rebuild(f.picker.Load().found)
	}
}

// widen connects to more instances than the subset: all that p knows are
// tried, failing or draining. It reports whether there were any, or p is old:
// then the call picks again from the set that another call has widened.
func (f *fleet) widen(p *picker) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed {
		return false
	}
	if f.picker.Load() != p {
		return true
	}
	if f.counts[dormant].Load() == 0 {
		return false
	}
	f.widened += f.client.subset
	f.rebuild(p.found)
	f.publish()
	return true
}

// review starts the time after which the fleet shrinks, or stops it.
func (f *fleet) review() {
	grown := f.widened > 0 || f.hasAsked.Load()
	steady := grown && int(f.counts[ready].Load()) >= f.client.subset
	switch {
	case steady && f.shrinking == nil:
		f.shrinking = time.AfterFunc(shrinkAfter, f.shrink)
	case !steady && f.shrinking != nil:
		f.shrinking.Stop()
		f.shrinking = nil
	}
}

// shrink lets go of what is not needed any more. An instance of the subset
// that never comes back does not hold it up: as many as the subset has must be
// usable, be it with one further down the order.
func (f *fleet) shrink() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.closed || f.shrinking == nil {
		return
	}
	f.shrinking = nil
	before, usable := f.widened, 0
	f.widened = 0
	for i, in := range f.ranked() {
		if usable >= f.client.subset {
			break
		}
		f.widened = max(i+1-f.client.subset, 0)
		if in.usable() {
			usable++
		}
	}
	f.widened = min(f.widened, before)
	if f.hasAsked.Load() && f.client.now()-f.needed.Load() >= int64(shrinkAfter) {
		for _, in := range f.table {
			in.asked = false
		}
		f.hasAsked.Store(false)
	}
	f.rebuild(f.picker.Load().found)
	f.publish()
}

// ask connects to instances outside the subset that the client's filters
// accept. A filter that refuses the whole subset is no reason to connect to
// everybody, so only what it accepts is connected to, the first in the client's
// order, at most as many as the subset has. When others hold those places,
// the ones that were idle for longest give way: a filter that pins every call
// to another instance costs a connection each, not one to each. The
// filters see the sleeping instances here, all of them, which takes time linear
// in the fleet; a call that the connected ones can serve never comes here.
func (f *fleet) ask(ctx context.Context, a *attempt) (bool, error) {
	nodes := f.sleeping(a)
	accepts, err := selector.KratosFilter(ctx, nodes, f.client.filters...) // code of users: not under f.mu
	if err != nil {
		return false, err
	}
	nodes = slices.DeleteFunc(nodes, func(n *selector.Node) bool { return !accepts(n) })
	if len(nodes) == 0 {
		return false, nil
	}
	asleep := make([]*instance, 0, len(nodes))
	for _, node := range nodes {
		if in, ok := node.Owner().(*instance); ok {
			asleep = append(asleep, in)
		}
	}
	slices.SortFunc(asleep, byRank)
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.admit(asleep), nil
}

// sleeping are the instances outside the subset that a may use, in no order.
func (f *fleet) sleeping(a *attempt) []*selector.Node {
	f.mu.Lock()
	defer f.mu.Unlock()
	nodes := make([]*selector.Node, 0, f.counts[dormant].Load())
	for _, in := range f.table {
		if in.state.Load() == dormant && in.node.Weight() > 0 && !a.call.tried.Has(in.node) {
			nodes = append(nodes, in.node)
		}
	}
	return nodes
}

// admit wakes instances that are still asleep, as far as there are places for
// them. It reports whether one is awake that was not when they were collected.
func (f *fleet) admit(asleep []*instance) bool {
	if f.closed {
		return false
	}
	places, idle := f.places()
	woken, stale := 0, false
	for _, in := range asleep {
		if in.state.Load() != dormant || f.table[in.key] != in {
			stale = true // another call was faster, or the list has changed
			continue
		}
		if places <= 0 {
			// One that works gives way only so that the call finds anything.
			if len(idle) == 0 || woken > 0 && idle[0].state.Load() != failing {
				break
			}
			idle[0].asked, idle = false, idle[1:]
			places++
		}
		places--
		in.asked, in.askedAt = true, f.client.now()
		woken++
	}
	if woken > 0 {
		f.hasAsked.Store(true)
		f.needed.Store(f.client.now())
		f.rebuild(f.picker.Load().found)
		f.publish()
	}
	return woken > 0 || stale
}

// places counts how many more instances filters may wake, and lists those that
// would give way: the failing ones, then those that work and have no calls, the
// longest idle first.
func (f *fleet) places() (free int, idle []*instance) {
	free = f.client.subset
	for _, in := range f.table {
		if !in.asked {
			continue
		}
		free--
		if in.state.Load() == failing || in.state.Load() == ready && in.node.InFlight()+in.node.OpenStreams() == 0 {
			idle = append(idle, in)
		}
	}
	slices.SortFunc(idle, func(a, b *instance) int {
		if a, b := a.state.Load() == failing, b.state.Load() == failing; a != b {
			if a {
				return -1
			}
			return 1
		}
		return cmp.Compare(a.lastUse(), b.lastUse())
	})
	return free, idle
}

// lastUse is when it was picked last, or woken: the call it was woken for has
// still to pick it.
func (in *instance) lastUse() int64 { return max(in.node.Stats().LastPick, in.askedAt) }

// noteNeed notes whether only instances that were asked for pass the filters.
func (p *picker) noteNeed(now int64, nodes []*selector.Node, accepts func(*selector.Node) bool) {
	if !p.fleet.hasAsked.Load() {
		return
	}
	need := false
	for _, node := range nodes {
		if !accepts(node) {
			continue
		}
		if in, ok := node.Owner().(*instance); ok && !p.asked[in] {
			return
		}
		need = true
	}
	if need {
		p.fleet.needed.Store(now)
	}
}

// maxAsks bounds how often a call asks for instances of one list. More than
// once, since what it has woken may have had to give way to another call's.
const maxAsks = 3

func (a *attempt) mayAsk(list uint32) bool {
	if a.asked != list {
		a.asked, a.asks = list, 0
	}
	a.asks++
	return a.asks <= maxAsks
}

// more looks for instances beyond those that are awake.
func (p *picker) more(ctx context.Context, a *attempt) (bool, error) {
	if len(p.client.filters) == 0 {
		return p.fleet.widen(p), nil
	}
	if p.fleet.counts[dormant].Load() == 0 || !a.mayAsk(p.list) {
		return false, nil
	}
	found, err := p.fleet.ask(ctx, a)
	if err != nil {
		a.failed(materpc.NoInstance, err)
	}
	return found, err
}
