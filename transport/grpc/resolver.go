package grpc

import (
	"errors"
	"strings"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"google.golang.org/grpc/attributes"
	"google.golang.org/grpc/resolver"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/selector"
)

// found is what a resolver tells the balancer. It travels as an attribute of
// the state: grpc-go's endpoints would cost four allocations an instance and
// carry less.
type found struct {
	client *client
	list   []listed
	err    error // the last read failed; list is the last good one
}

// listed is one instance of a list.
type listed struct {
	*selector.Instance
	dial resolver.Address // as grpc-go's own resolvers give it, else zero
}

type (
	foundKey    struct{}
	instanceKey struct{}
)

func foundIn(a *attributes.Attributes) (*found, bool) {
	f, ok := a.Value(foundKey{}).(*found)
	return f, ok
}

// Keys of instance metadata that we read.
const (
	gatedKey      = "materpc"     // present: the instance has our gate
	serverNameKey = "server_name" // TLS name of the instance
)

// resolverBuilder is the one builder of a client, for the scheme of its target.
type resolverBuilder struct {
	client    *client
	discovery kregistry.Discovery // one of these two for discovery targets
	hub       *registry.Hub
	inner     resolver.Builder // unix: grpc-go's
}

func (b *resolverBuilder) Scheme() string { return b.client.target.scheme }

// OverrideAuthority implements resolver.AuthorityOverrider.
func (b *resolverBuilder) OverrideAuthority(resolver.Target) string {
	return b.client.target.authority()
}

// Build implements resolver.Builder. What it starts ends with the resolver's
// Close: a client that is closed before its first call has built nothing.
func (b *resolverBuilder) Build(t resolver.Target, cc resolver.ClientConn, opts resolver.BuildOptions) (resolver.Resolver, error) {
	sink := &stateSink{ClientConn: cc, client: b.client}
	switch {
	case b.inner != nil:
		return b.inner.Build(t, sink, opts)
	case b.discovery == nil && b.hub == nil:
		list := make([]listed, 0, len(b.client.target.addresses))
		for _, address := range b.client.target.addresses {
			list = append(list, b.client.listed(resolver.Address{Addr: address}))
		}
		return idleResolver{}, sink.put(list, nil)
	}
	r := &discoveryResolver{sink: sink, client: b.client, hub: b.hub}
	if r.hub == nil {
		r.hub, r.ownHub = registry.NewHub(b.discovery, registry.OnEvent(b.client.discoveryEvent)), true
	}
	b.client.discovered.Store(r)
	r.patience = time.AfterFunc(firstAnswer, r.late)
	r.cancel = r.hub.Subscribe(b.client.target.name, r.update)
	return r, nil
}

// listed describes an instance of which only the address is known.
func (c *client) listed(address resolver.Address) listed {
	return listed{
		Instance: &selector.Instance{Address: address.Addr, Service: c.destination, Weight: selector.DefaultWeight},
		dial:     address,
	}
}

// discoveryEvent passes on what our own hub saw.
func (c *client) discoveryEvent(e registry.Event) {
	kind := materpc.Discovery
	if e.Kind == registry.RecordSkipped {
		kind = materpc.RecordSkipped
	}
	c.observers.emit(materpc.Event{Type: kind, Err: e.Err, Detail: e.String()})
}

// idleResolver belongs to a target that never changes.
type idleResolver struct{}

func (idleResolver) ResolveNow(resolver.ResolveNowOptions) {}
func (idleResolver) Close()                                {}

// stateSink adds what our balancer needs to the states of any resolver, and
// turns reported errors into states, since grpc-go tells a balancer of them
// only once it has one.
type stateSink struct {
	resolver.ClientConn
	client *client

	mu   sync.Mutex
	last []listed
}

// UpdateState implements resolver.ClientConn for grpc-go's resolvers.
func (s *stateSink) UpdateState(state resolver.State) error {
	return s.put(s.client.listFrom(state), nil)
}

// listFrom reads what grpc-go's own resolvers say.
func (c *client) listFrom(state resolver.State) []listed {
	var list []listed
	for _, endpoint := range state.Endpoints {
		for _, address := range endpoint.Addresses {
			list = append(list, c.listed(address))
		}
	}
	if state.Endpoints == nil {
		for _, address := range state.Addresses {
			list = append(list, c.listed(address))
		}
	}
	return list
}

// foundBy returns what a state tells. Behind a proxy grpc-go takes part: it
// resolves dns names nowhere and asks the proxy for them, and it puts the
// proxy's address in the place of others.
func (c *client) foundBy(state resolver.State) (*found, bool) {
	f, ok := foundIn(state.Attributes)
	if c != nil && (!ok || len(state.Endpoints) > 0) {
		return &found{client: c, list: c.listFrom(state)}, true
	}
	return f, ok
}

// ReportError implements resolver.ClientConn: the last good list stays.
func (s *stateSink) ReportError(err error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	s.client.observers.emit(materpc.Event{Type: materpc.Discovery, Err: err, Detail: s.client.target.text})
	_ = s.put(last, err)
}

func (s *stateSink) put(list []listed, err error) error {
	s.mu.Lock()
	s.last = list
	s.mu.Unlock()
	var endpoints []resolver.Endpoint
	if s.client.target.scheme == schemePassthrough { // for grpc-go's rule about proxies
		for _, entry := range list {
			endpoints = append(endpoints, resolver.Endpoint{Addresses: []resolver.Address{{Addr: entry.Address}}})
		}
	}
	return s.ClientConn.UpdateState(resolver.State{
		Endpoints:  endpoints,
		Attributes: attributes.New(foundKey{}, &found{client: s.client, list: list, err: err}),
	})
}

// firstAnswer is how long fail-fast calls wait for discovery's first answer.
const firstAnswer = time.Second

var errNoAnswer = errors.New("discovery has not answered yet")

// discoveryResolver feeds a hub's lists to grpc-go.
type discoveryResolver struct {
	sink     *stateSink
	client   *client
	hub      *registry.Hub
	ownHub   bool
	cancel   func()
	patience *time.Timer

	mu       sync.Mutex
	answered bool
	closed   bool
	last     registry.Snapshot
	known    map[*kregistry.ServiceInstance]*selector.Instance // of the last list; a hub keeps what is unchanged
	holders  holders                                           // of addresses that several records name
}

func (r *discoveryResolver) update(s registry.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || (!s.Answered && s.Err == nil) {
		return
	}
	r.answered = true
	r.patience.Stop()
	r.last = s
	r.put()
}

// put hands the last list on. r.mu is held.
func (r *discoveryResolver) put() {
	s := r.last
	list := r.describe(s.Instances)
	err := s.Err
	if err == nil && len(list) == 0 && len(s.Instances) > 0 {
		err = errors.New("no instance has an endpoint with scheme " + r.client.scheme + ": " + endpointsOf(s.Instances))
	}
	_ = r.sink.put(list, err) // the balancer accepts every state until it is closed
}

// describe takes what the client can dial, each address once. r.mu is held.
func (r *discoveryResolver) describe(instances []*kregistry.ServiceInstance) []listed {
	list := make([]listed, 0, len(instances))
	known := make(map[*kregistry.ServiceInstance]*selector.Instance, len(instances))
	seen := make(map[string]*selector.Instance, len(instances))
	var rivals map[string][]*selector.Instance // by address, where there are several
	for _, in := range instances {
		description, ok := r.known[in]
		if !ok {
			description = r.client.describe(in)
		}
		known[in] = description
		if description == nil {
			continue
		}
		first, twice := seen[description.Address]
		if !twice {
			seen[description.Address] = description
			list = append(list, listed{Instance: description})
			continue
		}
		if rivals == nil {
			rivals = make(map[string][]*selector.Instance)
		}
		if rivals[description.Address] == nil {
			rivals[description.Address] = []*selector.Instance{first}
		}
		rivals[description.Address] = append(rivals[description.Address], description)
	}
	if r.holders == nil && rivals != nil {
		r.holders = make(holders)
	}
	r.holders.settle(list, rivals, r.known)
	r.known = known
	return list
}

// describe returns what the client needs of a record, nil when it has no
// endpoint of the client's scheme. The hub has reported malformed ones.
func (c *client) describe(in *kregistry.ServiceInstance) *selector.Instance {
	endpoints, _ := registry.Endpoints(in, c.scheme)
	if len(endpoints) == 0 {
		return nil
	}
	description, err := selector.FromService(in, endpoints[0].Scheme, endpoints[0].Address())
	if err != nil {
		c.observers.emit(materpc.Event{Type: materpc.RecordSkipped, Err: err, Detail: "weight of " + in.ID})
	}
	return description
}

func endpointsOf(instances []*kregistry.ServiceInstance) string {
	var texts []string
	for _, in := range instances[:min(len(instances), 3)] {
		texts = append(texts, in.Endpoints...)
	}
	return strings.Join(texts, ", ")
}

// late ends the wait of fail-fast calls.
func (r *discoveryResolver) late() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.answered && !r.closed {
		_ = r.sink.put(nil, errNoAnswer)
	}
}

// ResolveNow implements resolver.Resolver, for discoveries that do not push:
// a lost connection is a reason to look again.
func (r *discoveryResolver) ResolveNow(resolver.ResolveNowOptions) {
	r.hub.Refresh(r.client.target.name)
}

// Close implements resolver.Resolver.
func (r *discoveryResolver) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.patience.Stop()
	r.cancel()
	if r.ownHub {
		_ = r.hub.Close() // says only which watch its backend holds up; the hub has reported it
	}
}
