package local

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

const (
	heartbeat = time.Second
	expiry    = 3 * time.Second
	// burial is how long the file of a dead owner stays.
	burial = time.Minute
	// closeBound is how long Close waits for a file system that hangs.
	closeBound = 3 * time.Second
)

// Registry shares records through a directory. Safe for concurrent use; any
// number of them may use one directory, in one process or in many.
type Registry struct {
	path   string
	nonce  string
	files  files
	events registry.Events
	reader *reader

	mu     sync.Mutex
	closed bool
	owners map[string]*owner // by file name
}

var _ registry.Registry = (*Registry)(nil)

// Option configures a Registry.
type Option interface{ apply(*Registry) }

type eventOption func(registry.Event)

func (o eventOption) apply(r *Registry) { r.events.Receive(o) }

// OnEvent adds a receiver of events; several add up. It runs on a goroutine of
// its own and may be slow or panic.
func OnEvent(fn func(registry.Event)) Option { return eventOption(fn) }

// New returns a registry over a directory, which it makes if it is missing
// (mode 0700); "" is materpc/registry in os.UserCacheDir. A directory that
// cannot be written is an error, and nothing is left running. A heartbeat
// begins with Register and a look at the directory with GetService or Watch;
// whoever calls New calls Close.
func New(dir string, opts ...Option) (*Registry, error) {
	if dir == "" {
		cache, err := os.UserCacheDir()
		if err != nil {
			return nil, fmt.Errorf("local registry: no directory was given and there is no user cache directory: %w; give one", err)
		}
		dir = filepath.Join(cache, "materpc", "registry")
	}
	path, err := filepath.Abs(dir)
	if err != nil {
		return nil, fmt.Errorf("local registry: directory %q: %w", dir, err)
	}
	disk := directory{path: path}
	if err := disk.probe(); err != nil {
		return nil, fmt.Errorf("local registry: %w", err)
	}
	return open(path, disk, opts...), nil
}

func open(path string, f files, opts ...Option) *Registry {
	r := &Registry{path: path, nonce: rand.Text(), files: f, owners: make(map[string]*owner)}
	for _, opt := range opts {
		if opt != nil {
			opt.apply(r)
		}
	}
	r.reader = newReader(f, &r.events)
	return r
}

// Opener returns the opener for "local" and "local:///DIR".
func Opener(opts ...Option) registry.Opener {
	return registry.Opener{Scheme: registry.SchemeLocal, Open: func(target *url.URL) (registry.Registry, error) {
		if target.Host != "" || target.Opaque != "" || target.RawQuery != "" {
			return nil, fmt.Errorf("write it as local, local:///DIR with three slashes, or a path; %q is none of them", target)
		}
		// A nil *Registry in the interface would not be nil.
		opened, err := New(filepath.FromSlash(target.Path), opts...)
		if err != nil {
			return nil, err
		}
		return opened, nil
	}}
}

// Dir returns the directory, absolute.
func (r *Registry) Dir() string { return r.path }

// Register writes the record and keeps it alive until Deregister or Close,
// whatever becomes of ctx. Registering the same name and id again replaces the
// data under the same heartbeat; a replacement that fails leaves both alone. A
// write that ctx did not wait for is undone. It reports all faults of the
// instance.
func (r *Registry) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	if err := registry.Validate(in); err != nil {
		return fmt.Errorf("local registry: register: %w", err)
	}
	if err := ctx.Err(); err != nil {
		return err
	}
	in = registry.Clone(in)
	for {
		o, err := r.owner(in)
		if err != nil {
			return err
		}
		if err := o.acquire(ctx); err != nil {
			return fmt.Errorf("local registry: register %q id %q: the record is busy: %w", in.Name, in.ID, err)
		}
		if o.withdrawn() { // a Deregister was faster: this one is over
			o.release()
			r.forget(o)
			continue
		}
		if err := o.register(ctx, in); err != nil {
			return fmt.Errorf("local registry: register %q id %q in %s: %w", in.Name, in.ID, r.path, err)
		}
		return nil
	}
}

// owner returns the owner of an instance's record, a new one if need be.
func (r *Registry) owner(in *kregistry.ServiceInstance) (*owner, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errClosed
	}
	name := fileName(in.Name, in.ID)
	o := r.owners[name]
	if o == nil {
		o = &owner{files: r.files, events: &r.events, name: name, nonce: r.nonce, turn: make(chan struct{}, 1)}
		o.forget = func() { r.forget(o) }
		r.owners[name] = o
	}
	return o, nil
}

func (r *Registry) forget(o *owner) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.owners[o.name] == o {
		delete(r.owners, o.name)
	}
}

// Deregister takes our record of the instance away and returns nil when it is
// gone; nothing is written afterwards. It returns by the end of ctx also when
// a heartbeat hangs in the file system; the record is then removed as soon as
// that comes back. A record that is absent, or another owner's, is no error.
func (r *Registry) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	if err := registry.ValidateKey(in); err != nil {
		return fmt.Errorf("local registry: deregister: %w", err)
	}
	r.mu.Lock()
	o := r.owners[fileName(in.Name, in.ID)]
	r.mu.Unlock()
	if o == nil {
		return nil
	}
	if err := o.deregister(ctx); err != nil {
		return fmt.Errorf("local registry: deregister %q id %q in %s: %w", in.Name, in.ID, r.path, err)
	}
	r.forget(o)
	return nil
}

// GetService looks at the directory now and returns copies of the live records
// under exactly that name, by id.
func (r *Registry) GetService(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	list, err := r.reader.get(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("local registry: %w", err)
	}
	return list, nil
}

// Watch returns a watcher of exactly that name; it ends with ctx, Stop or
// Close.
func (r *Registry) Watch(ctx context.Context, name string) (kregistry.Watcher, error) {
	watcher, err := r.reader.watch(ctx, name)
	if err != nil {
		return nil, fmt.Errorf("local registry: %w", err)
	}
	return watcher, nil
}

// Close ends all watches, takes the records of this registry away and waits
// for its goroutines, at most 3 s. It may be called again.
func (r *Registry) Close() error {
	r.mu.Lock()
	r.closed = true
	owners := make([]*owner, 0, len(r.owners))
	for _, o := range r.owners {
		owners = append(owners, o)
	}
	r.mu.Unlock()
	ctx, cancel := context.WithTimeout(context.Background(), closeBound)
	defer cancel()
	faults := []error{r.reader.close(ctx)}
	for _, o := range owners {
		if err := o.deregister(ctx); err != nil {
			faults = append(faults, fmt.Errorf("file %s: %w", o.name, err))
			continue
		}
		r.forget(o)
	}
	if err := errors.Join(faults...); err != nil {
		return fmt.Errorf("local registry: close: %w", err)
	}
	return nil
}
