package memory

import (
	"context"
	"fmt"
	"net/url"
	"slices"
	"strings"
	"sync"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/internal/feed"
)

// Scheme is the URL scheme of this registry.
const Scheme = "memory"

// Registry keeps records in this process. The zero value is not usable; see
// New. It starts no goroutine and needs no Close.
type Registry struct {
	mu       sync.Mutex
	services map[string]*service
}

// service is what is known under one name.
type service struct {
	records map[string]*kregistry.ServiceInstance // by id, never changed once stored
	feeds   map[*feed.Feed]struct{}
}

var _ registry.Registry = (*Registry)(nil)

// New returns an empty registry.
func New() *Registry { return &Registry{services: make(map[string]*service)} }

// Opener returns an opener for "memory": all that is opened with it is one
// and the same registry.
func Opener() registry.Opener {
	shared := New()
	return registry.Opener{Scheme: Scheme, Open: func(target *url.URL) (registry.Registry, error) {
		if target.Host != "" || target.Path != "" || target.Opaque != "" || target.RawQuery != "" {
			return nil, fmt.Errorf("scheme %q takes nothing after it", Scheme)
		}
		return shared, nil
	}}
}

// Register stores a copy of the instance under its name and id, over an older
// one. It reports all faults of the instance; an ended ctx changes nothing.
func (r *Registry) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	if err := registry.Validate(in); err != nil {
		return fmt.Errorf("memory registry: register: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.service(in.Name)
	s.records[in.ID] = registry.Clone(in)
	s.push()
	return nil
}

// Deregister removes the record with the name and id of the instance; one
// that is absent is no error.
func (r *Registry) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	if err := registry.ValidateKey(in); err != nil {
		return fmt.Errorf("memory registry: deregister: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.services[in.Name]
	if s == nil {
		return nil
	}
	delete(s.records, in.ID)
	s.push()
	r.tidy(in.Name)
	return nil
}

// GetService returns copies of the records under exactly that name, by id.
func (r *Registry) GetService(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	s := r.services[name]
	if s == nil {
		return []*kregistry.ServiceInstance{}, nil
	}
	return registry.CloneAll(s.list()), nil
}

// Watch returns a watcher of a name; it ends with ctx or Stop.
func (r *Registry) Watch(ctx context.Context, name string) (kregistry.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := feed.New(ctx)
	r.mu.Lock()
	s := r.service(name)
	s.feeds[f] = struct{}{}
	f.Push(s.list())
	r.mu.Unlock()
	f.OnEnd(func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		delete(s.feeds, f)
		r.tidy(name)
	})
	return f, nil
}

// service returns what is kept under a name. r.mu is held.
func (r *Registry) service(name string) *service {
	s := r.services[name]
	if s == nil {
		s = &service{records: make(map[string]*kregistry.ServiceInstance), feeds: make(map[*feed.Feed]struct{})}
		r.services[name] = s
	}
	return s
}

// tidy forgets a name that nobody uses. r.mu is held.
func (r *Registry) tidy(name string) {
	if s := r.services[name]; s != nil && len(s.records) == 0 && len(s.feeds) == 0 {
		delete(r.services, name)
	}
}

func (s *service) list() []*kregistry.ServiceInstance {
	list := make([]*kregistry.ServiceInstance, 0, len(s.records))
	for _, in := range s.records {
		list = append(list, in)
	}
	slices.SortFunc(list, func(a, b *kregistry.ServiceInstance) int { return strings.Compare(a.ID, b.ID) })
	return list
}

func (s *service) push() {
	list := s.list()
	for f := range s.feeds {
		f.Push(list)
	}
}
