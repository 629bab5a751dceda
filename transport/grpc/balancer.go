package grpc

import (
	"cmp"
	"hash/fnv"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/connectivity"
	_ "google.golang.org/grpc/health" // the client side of WithHealthCheck
	"google.golang.org/grpc/resolver"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// balancerName selects our balancer in the service config, which every client
// of this package gives last, so that no option of a user replaces it.
const (
	balancerName  = "materpc"
	serviceConfig = `{"loadBalancingConfig":[{"` + balancerName + `":{}}]}`
	// healthServiceConfig also watches the health service of each instance.
	healthServiceConfig = `{"loadBalancingConfig":[{"` + balancerName + `":{}}],"healthCheckConfig":{"serviceName":""}}`
)

func init() { balancer.Register(balancerBuilder{}) }

type balancerBuilder struct{}

func (balancerBuilder) Name() string { return balancerName }

func (balancerBuilder) Build(cc balancer.ClientConn, opts balancer.BuildOptions) balancer.Balancer {
	f := &fleet{cc: cc, table: make(map[instanceID]*instance)}
	if c, ok := opts.DialCreds.(*socketCredentials); ok {
		f.client = c.client
	}
	return f
}

// fleet is the balancer: one table of instances for the life of a client. It
// rebuilds its picker only when the set changes; a readiness flip is an atomic
// plus UpdateState with the same picker, which wakes blocked picks.
type fleet struct {
	cc     balancer.ClientConn
	client *client // from the credentials, or from the first resolver state on
	picker atomic.Pointer[picker]

	mu      sync.Mutex
	table   map[instanceID]*instance
	leaving map[*instance]struct{} // withdrawn, within their drain grace, or displaced
	pushes  uint64                 // lists applied
	counts  [left + 1]atomic.Int32 // instances by state
	closed  bool

	widened   int          // instances beyond the subset; see subset.go
	standIns  int          // that were in the subset and wait for newcomers
	shrinking *time.Timer  // nil while there is nothing to shrink
	hasAsked  atomic.Bool  // filters have woken instances; written under mu
	needed    atomic.Int64 // when a filter accepted none but those
}

var _ balancer.Balancer = (*fleet)(nil)

// UpdateClientConnState takes what the resolver knows.
func (f *fleet) UpdateClientConnState(s balancer.ClientConnState) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	found, ok := f.client.foundBy(s.ResolverState)
	if !ok || f.closed {
		return balancer.ErrBadResolverState
	}
	f.client = found.client
	f.client.fleet.Store(f)
	changed := f.apply(found.list)
	old := f.picker.Load()
	if changed || old == nil {
		f.rebuild(found)
	} else if old.found != found {
		next := *old
		next.found = found
		f.picker.Store(&next)
	}
	f.publish()
	return nil
}

// apply makes the table equal to list and reports whether set or weights
// changed.
func (f *fleet) apply(list []listed) bool {
	changed := false
	f.pushes++
	for _, entry := range list {
		key := instanceID{address: entry.Address, id: entry.ID}
		in, known := f.table[key]
		if !known {
			in = f.newInstance(key, entry)
			f.table[key] = in
			changed = true
		}
		changed = changed || in.node.Weight() != max(entry.Weight, 0)
		in.node.Update(entry.Instance)
		in.seen = f.pushes
	}
	for key, in := range f.table {
		if in.seen != f.pushes {
			delete(f.table, key)
			f.dismiss(in)
			changed = true
		}
	}
	if changed {
		f.hurry()
	}
	return changed
}

func (f *fleet) newInstance(key instanceID, entry listed) *instance {
	rank := fnv.New64a()
	_, _ = rank.Write([]byte(f.client.nonce + key.address + "\x00" + key.id)) // a hash never fails
	in := &instance{
		fleet: f, key: key, rank: selector.Mix(rank.Sum64()), dial: entry.dial,
		node: selector.NewNode(entry.Instance, f.client.now()),
		peer: materpc.Peer{ID: entry.ID, Service: entry.Service, Address: entry.Address},
	}
	in.kratos = in.node.Kratos()
	in.node.SetOwner(in)
	in.gated.Store(entry.Metadata[gatedKey] != "")
	f.counts[dormant].Add(1)
	return in
}

// rebuild chooses the active instances, starts connecting to new ones, and
// makes the picker.
func (f *fleet) rebuild(found *found) {
	active := f.choose()
	nodes := make([]*selector.Node, len(active))
	var asked map[*instance]bool
	for i, in := range active {
		f.wake(in)
		nodes[i] = in.node
		if in.asked && asked == nil {
			asked = make(map[*instance]bool)
		}
		if in.asked {
			asked[in] = true
		}
	}
	var previous selector.Picker
	if old := f.picker.Load(); old != nil {
		previous = old.strategy
	}
	f.picker.Store(&picker{
		fleet: f, client: f.client, found: found, instances: active, nodes: nodes, asked: asked, list: uint32(f.pushes),
		strategy: f.client.strategy.Build(nodes, previous),
	})
}

// wake connects a dormant instance.
func (f *fleet) wake(in *instance) {
	if in.state.Load() != dormant {
		return
	}
	description, address := in.node.Instance(), in.dial
	address.Addr = description.Address
	address.Attributes = address.Attributes.WithValue(instanceKey{}, in)
	if address.ServerName == "" {
		address.ServerName = cmp.Or(description.Metadata[serverNameKey], f.client.target.serverName(description.Address))
	}
	subConn, err := f.cc.NewSubConn([]resolver.Address{address}, balancer.NewSubConnOptions{ //nolint:staticcheck // one address it is
		HealthCheckEnabled: f.client.healthCheck,
		StateListener:      func(s balancer.SubConnState) { f.changed(in, s) },
	})
	if err != nil { // the ClientConn is closing
		in.cause = err
		f.move(in, failing)
		return
	}
	in.subConn = subConn
	f.move(in, waiting)
	subConn.Connect()
}

// sleep takes a connected instance back out of the subset. It is still
// published, so its running calls end by themselves.
func (f *fleet) sleep(in *instance) {
	if in.state.Load() == dormant {
		return
	}
	fresh := f.newInstance(in.key, listed{Instance: in.node.Instance(), dial: in.dial})
	fresh.seen = in.seen
	f.table[in.key] = fresh
	f.retire(in)
}

// dismiss ends an instance that discovery has withdrawn: no new calls, running
// ones up to the drain grace.
func (f *fleet) dismiss(in *instance) {
	if f.retire(in); in.subConn != nil {
		in.grace = time.AfterFunc(f.client.drainGrace, in.sockets.cut)
	}
}

// retire takes an instance out of use; its running calls go on.
func (f *fleet) retire(in *instance) {
	f.move(in, left)
	f.counts[left].Add(-1)
	if in.subConn == nil {
		return
	}
	in.subConn.Shutdown()
	if f.leaving == nil {
		f.leaving = make(map[*instance]struct{})
	}
	f.leaving[in] = struct{}{}
	// Asynchronous, since a socket may close under grpc-go's locks or ours.
	in.sockets.whenEmpty(func() { time.AfterFunc(0, func() { f.gone(in) }) })
}

// hurry starts the drain grace of instances that were displaced and then left
// discovery.
func (f *fleet) hurry() {
	for in := range f.leaving {
		if _, published := f.table[in.key]; in.grace == nil && !published {
			in.grace = time.AfterFunc(f.client.drainGrace, in.sockets.cut)
		}
	}
}

func (f *fleet) gone(in *instance) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.grace != nil {
		in.grace.Stop()
	}
	delete(f.leaving, in)
}

// changed follows a SubConn.
func (f *fleet) changed(in *instance, s balancer.SubConnState) {
	f.mu.Lock()
	defer f.mu.Unlock()
	was := in.state.Load()
	if was == left || f.closed {
		return
	}
	switch s.ConnectivityState {
	case connectivity.Ready:
		in.connection.Add(1)
		in.draining = false
		f.move(in, ready)
		f.settle()
	case connectivity.Idle, connectivity.Connecting:
		if was == ready || in.draining {
			in.connection.Add(1)
			in.draining = false
			f.move(in, waiting)
		}
		if s.ConnectivityState == connectivity.Idle {
			f.cc.ResolveNow(resolver.ResolveNowOptions{})
			in.subConn.Connect()
		}
	case connectivity.TransientFailure:
		if was == ready || in.draining {
			in.connection.Add(1)
			in.draining = false
		}
		in.cause = s.ConnectionError
		f.move(in, failing)
		f.cc.ResolveNow(resolver.ResolveNowOptions{})
	case connectivity.Shutdown:
		return
	}
	f.publish()
}

// move changes an instance's state.
func (f *fleet) move(in *instance, to instanceState) {
	f.counts[in.state.Swap(to)].Add(-1)
	f.counts[to].Add(1)
	in.node.SetReady(to == ready)
}

// publish tells grpc-go, always: that alone wakes blocked picks, and a flag
// "someone waits" would lose wake-ups.
func (f *fleet) publish() {
	p := f.picker.Load()
	if p == nil {
		return
	}
	f.review()
	state := connectivity.TransientFailure
	switch {
	case f.counts[ready].Load() > 0:
		state = connectivity.Ready
	case f.counts[waiting].Load() > 0:
		state = connectivity.Connecting
	}
	f.cc.UpdateState(balancer.State{ConnectivityState: state, Picker: p})
}

// ResolverError implements balancer.Balancer. Our resolvers report what they
// know, failures included, as state.
func (f *fleet) ResolverError(error) {}

// UpdateSubConnState implements balancer.Balancer; listeners are used instead.
func (f *fleet) UpdateSubConnState(balancer.SubConn, balancer.SubConnState) {}

// ExitIdle implements balancer.Balancer.
func (f *fleet) ExitIdle() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, in := range f.table {
		if in.subConn != nil && in.state.Load() != ready {
			in.subConn.Connect()
		}
	}
}

// Close implements balancer.Balancer: nothing of ours outlives it.
func (f *fleet) Close() {
	f.mu.Lock()
	f.closed = true
	if f.shrinking != nil {
		f.shrinking.Stop()
	}
	departed := make([]*instance, 0, len(f.leaving))
	for in := range f.leaving {
		if in.grace != nil {
			in.grace.Stop()
		}
		departed = append(departed, in)
	}
	for _, in := range f.table {
		f.move(in, left)
	}
	f.mu.Unlock()
	for _, in := range departed {
		in.sockets.cut()
	}
}
