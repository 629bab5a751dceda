package dns

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/internal/feed"
	"github.com/materpc/materpc/registry/internal/serial"
)

const (
	defaultInterval = 30 * time.Second
	defaultPort     = 443
	lookupBound     = 5 * time.Second
	// refreshPause is the least time between a lookup and one that Refresh
	// asks for: a server that refuses connections must not become a storm of
	// DNS queries.
	refreshPause = 5 * time.Second
	firstRetry   = time.Second
)

// Resolver is the part of *net.Resolver that is used. It is called
// concurrently and should keep its ctx.
type Resolver interface {
	LookupHost(ctx context.Context, host string) ([]string, error)
	LookupSRV(ctx context.Context, service, proto, name string) (string, []*net.SRV, error)
}

// Discovery finds instances by DNS. Safe for concurrent use. It runs one
// goroutine per watch, which ends with it.
type Discovery struct {
	resolver Resolver
	scheme   string
	interval time.Duration
	srv      bool
	events   registry.Events

	mu      sync.Mutex
	watches map[*poll]struct{}
}

var (
	_ kregistry.Discovery = (*Discovery)(nil)
	_ registry.Refresher  = (*Discovery)(nil)
)

// Option configures a Discovery.
type Option interface{ apply(*Discovery) }

type optionFunc func(*Discovery)

func (f optionFunc) apply(d *Discovery) { f(d) }

// WithResolver sets what answers. Default net.DefaultResolver.
func WithResolver(r Resolver) Option { return optionFunc(func(d *Discovery) { d.resolver = r }) }

// WithInterval sets the time between two lookups of a watch. Default 30 s;
// what is not positive means the default.
func WithInterval(every time.Duration) Option {
	return optionFunc(func(d *Discovery) {
		if every > 0 {
			d.interval = every
		}
	})
}

// WithScheme sets the scheme of the endpoints. Default "grpc".
func WithScheme(scheme string) Option { return optionFunc(func(d *Discovery) { d.scheme = scheme }) }

// OnEvent adds a receiver of events: a watch tells ReadFailed once per outage
// and ReadRecovered after it.
func OnEvent(fn func(registry.Event)) Option {
	return optionFunc(func(d *Discovery) { d.events.Receive(fn) })
}

// New returns a discovery of host names: a service is named host or
// host:port.
func New(opts ...Option) *Discovery {
	d := &Discovery{resolver: net.DefaultResolver, scheme: "grpc", interval: defaultInterval, watches: make(map[*poll]struct{})}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(d)
		}
	}
	return d
}

// NewSRV returns a discovery of SRV records: a service is named by the whole
// name of the record, or by the part after "_grpc._tcp.".
func NewSRV(opts ...Option) *Discovery {
	d := New(opts...)
	d.srv = true
	return d
}

// GetService looks up now, for at most 5 s.
func (d *Discovery) GetService(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	bound, cancel := context.WithTimeout(ctx, lookupBound)
	defer cancel()
	list, _, err := serial.Bounded(bound, func() ([]*kregistry.ServiceInstance, error) {
		if d.srv {
			return d.lookupSRV(bound, name)
		}
		return d.lookupHost(bound, name)
	}, nil)
	if err != nil {
		return nil, fmt.Errorf("dns: %q: %w", name, err)
	}
	return list, nil
}

// Watch looks up again and again until ctx ends or the watcher is stopped.
func (d *Discovery) Watch(ctx context.Context, name string) (kregistry.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	p := newPoll(ctx, d, name)
	d.mu.Lock()
	d.watches[p] = struct{}{}
	d.mu.Unlock()
	p.feed.OnEnd(func() {
		d.mu.Lock()
		defer d.mu.Unlock()
		delete(d.watches, p)
	})
	go p.run()
	return p.feed, nil
}

// Refresh asks the watches of a name to look again soon.
func (d *Discovery) Refresh(name string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	for p := range d.watches {
		if p.name == name {
			p.refresh()
		}
	}
}

func (d *Discovery) lookupHost(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	host, port, err := splitName(name)
	if err != nil {
		return nil, err
	}
	addresses, err := d.resolver.LookupHost(ctx, host)
	if err != nil {
		return nil, err
	}
	if len(addresses) == 0 {
		return nil, errors.New("the name has no address")
	}
	return d.instances(name, addresses, port, nil)
}

// splitName reads host or host:port.
func splitName(name string) (string, int, error) {
	host, raw, err := net.SplitHostPort(name)
	if err != nil {
		bare := strings.TrimSuffix(strings.TrimPrefix(name, "["), "]")
		if bare == "" || strings.Contains(name, ":") && net.ParseIP(bare) == nil {
			return "", 0, fmt.Errorf("name it host or host:port: %w", err)
		}
		return bare, defaultPort, nil
	}
	port, err := strconv.ParseUint(raw, 10, 16)
	if err != nil || port == 0 || host == "" {
		return "", 0, errors.New("name it host or host:port, with a port from 1 to 65535")
	}
	return host, int(port), nil
}

// instances makes one instance per address.
func (d *Discovery) instances(name string, addresses []string, port int, metadata map[string]string) ([]*kregistry.ServiceInstance, error) {
	list := make([]*kregistry.ServiceInstance, 0, len(addresses))
	addresses = slices.Clone(addresses)
	slices.Sort(addresses)
	for _, address := range slices.Compact(addresses) {
		e, err := registry.NewEndpoint(d.scheme, address, port)
		if err != nil {
			return nil, err
		}
		in := &kregistry.ServiceInstance{Name: name, Metadata: metadata, Endpoints: []string{e.String()}}
		list = append(list, registry.Clone(in))
	}
	return list, nil
}

// poll is one watch.
type poll struct {
	discovery *Discovery
	ctx       context.Context
	name      string
	feed      *feed.Feed
	asked     chan struct{} // has room for one
}

func newPoll(ctx context.Context, d *Discovery, name string) *poll {
	ctx, cancel := context.WithCancel(ctx)
	p := &poll{discovery: d, ctx: ctx, name: name, feed: feed.New(ctx), asked: make(chan struct{}, 1)}
	p.feed.OnEnd(cancel)
	return p
}

func (p *poll) refresh() {
	select {
	case p.asked <- struct{}{}:
	default:
	}
}

func (p *poll) run() {
	retry, failing := firstRetry, false
	for p.ctx.Err() == nil {
		list, err := p.discovery.GetService(p.ctx, p.name)
		if p.ctx.Err() != nil {
			return
		}
		p.report(err, failing)
		failing = err != nil
		if err == nil {
			p.feed.Push(list)
			retry = firstRetry
			p.rest(p.discovery.interval)
			continue
		}
		p.rest(min(retry, p.discovery.interval))
		retry = min(2*retry, p.discovery.interval)
	}
}

func (p *poll) report(err error, failing bool) {
	switch {
	case err != nil && !failing:
		p.discovery.events.Send(registry.Event{Kind: registry.ReadFailed, Service: p.name, Err: err})
	case err == nil && failing:
		p.discovery.events.Send(registry.Event{Kind: registry.ReadRecovered, Service: p.name})
	}
}

// rest waits for the next lookup: a pause, shortened by a refresh.
func (p *poll) rest(pause time.Duration) {
	began := time.Now()
	timer := time.NewTimer(pause)
	defer timer.Stop()
	asked := p.asked
	for {
		select {
		case <-p.ctx.Done():
			return
		case <-timer.C:
			return
		case <-asked:
			asked = nil
			timer.Reset(max(0, min(pause, refreshPause)-time.Since(began)))
		}
	}
}
