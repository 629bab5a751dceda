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

// found is what a resolver tells the balancer beside the endpoints.
type found struct {
	client *client
	err    error // the last read failed; the endpoints are the last good ones
}

type (
	foundKey       struct{}
	descriptionKey struct{}
	instanceKey    struct{}
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

// descriptionOf returns what an endpoint's attributes say about it. They are
// the endpoint's, not the address's: changing them re-dials nothing.
func descriptionOf(e resolver.Endpoint) *selector.Instance {
	if d, ok := e.Attributes.Value(descriptionKey{}).(*selector.Instance); ok {
		return d
	}
	return &selector.Instance{Address: e.Addresses[0].Addr, Weight: selector.DefaultWeight}
}

func endpointFor(d *selector.Instance) resolver.Endpoint {
	return resolver.Endpoint{
		Addresses:  []resolver.Address{{Addr: d.Address}},
		Attributes: attributes.New(descriptionKey{}, d),
	}
}

// resolverBuilder is the one builder of a client, for the scheme of its target.
type resolverBuilder struct {
	client    *client
	discovery kregistry.Discovery // one of these two for discovery targets
	hub       *registry.Hub
	inner     resolver.Builder // dns, unix: grpc-go's
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
		endpoints := make([]resolver.Endpoint, 0, len(b.client.target.addresses))
		for _, address := range b.client.target.addresses {
			endpoints = append(endpoints, endpointFor(&selector.Instance{
				Address: address, Service: b.client.destination, Weight: selector.DefaultWeight,
			}))
		}
		return idleResolver{}, sink.put(endpoints, nil)
	}
	r := &discoveryResolver{sink: sink, client: b.client}
	hub := b.hub
	if hub == nil {
		r.hub = registry.NewHub(b.discovery, registry.OnEvent(b.client.discoveryEvent))
		hub = r.hub
	}
	r.patience = time.AfterFunc(firstAnswer, r.late)
	r.cancel = hub.Subscribe(b.client.target.name, r.update)
	return r, nil
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
	last []resolver.Endpoint
}

// UpdateState implements resolver.ClientConn for grpc-go's resolvers.
func (s *stateSink) UpdateState(state resolver.State) error {
	endpoints := state.Endpoints
	if endpoints == nil {
		for _, address := range state.Addresses {
			endpoints = append(endpoints, endpointFor(&selector.Instance{
				Address: address.Addr, Service: s.client.destination, Weight: selector.DefaultWeight,
			}))
		}
	}
	return s.put(endpoints, nil)
}

// ReportError implements resolver.ClientConn: the last good list stays.
func (s *stateSink) ReportError(err error) {
	s.mu.Lock()
	last := s.last
	s.mu.Unlock()
	s.client.observers.emit(materpc.Event{Type: materpc.Discovery, Err: err, Detail: s.client.target.text})
	_ = s.put(last, err)
}

func (s *stateSink) put(endpoints []resolver.Endpoint, err error) error {
	s.mu.Lock()
	s.last = endpoints
	s.mu.Unlock()
	return s.ClientConn.UpdateState(resolver.State{
		Endpoints:  endpoints,
		Attributes: attributes.New(foundKey{}, &found{client: s.client, err: err}),
	})
}

// firstAnswer is how long fail-fast calls wait for discovery's first answer.
const firstAnswer = time.Second

var errNoAnswer = errors.New("discovery has not answered yet")

// discoveryResolver feeds a hub's lists to grpc-go.
type discoveryResolver struct {
	sink     *stateSink
	client   *client
	hub      *registry.Hub // when it is ours to close
	cancel   func()
	patience *time.Timer

	mu       sync.Mutex
	answered bool
	closed   bool
}

func (r *discoveryResolver) update(s registry.Snapshot) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed || (!s.Answered && s.Err == nil) {
		return
	}
	r.answered = true
	r.patience.Stop()
	addresses, _ := registry.Addresses(s.Instances, r.client.scheme) // the hub reports bad records, once
	endpoints := make([]resolver.Endpoint, 0, len(addresses))
	for _, address := range addresses {
		description, err := selector.FromService(address.Instance, address.Endpoint.Scheme, address.Endpoint.Address())
		if err != nil {
			r.client.observers.emit(materpc.Event{Type: materpc.RecordSkipped, Err: err, Detail: "weight of " + address.Instance.ID})
		}
		endpoints = append(endpoints, endpointFor(description))
	}
	err := s.Err
	if err == nil && len(endpoints) == 0 && len(s.Instances) > 0 {
		err = errors.New("no instance has an endpoint with scheme " + r.client.scheme + ": " + endpointsOf(s.Instances))
	}
	_ = r.sink.put(endpoints, err) // the balancer accepts every state until it is closed
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

// ResolveNow implements resolver.Resolver; discovery pushes.
func (*discoveryResolver) ResolveNow(resolver.ResolveNowOptions) {}

// Close implements resolver.Resolver.
func (r *discoveryResolver) Close() {
	r.mu.Lock()
	r.closed = true
	r.mu.Unlock()
	r.patience.Stop()
	r.cancel()
	if r.hub != nil {
		_ = r.hub.Close() // says only which watch its backend holds up; the hub has reported it
	}
}
