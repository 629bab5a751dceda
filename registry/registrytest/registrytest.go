package registrytest

import (
	"context"
	"fmt"
	"io"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

// Backend says how to test one kind of registry.
type Backend struct {
	// Name is the first part of the names of the checks.
	Name string
	// New returns an empty store for one check.
	New func(t *testing.T) Store
	// Bubble runs each check in a testing/synctest bubble, where waiting takes
	// no time and a goroutine that is left behind fails the check. Not for
	// backends that talk to a server.
	Bubble bool
	// Within is how soon a change is seen by another handle. Default 1 s.
	Within time.Duration
	// Expiry is how long the record of a dead owner stays; zero if records do
	// not expire.
	Expiry time.Duration
}

// Store is one empty place for records, and what can be done to it.
type Store struct {
	// Open returns a further handle on the store, such as another process
	// would have. The suite closes handles that have a Close method.
	Open func(t *testing.T) registry.Registry
	// Kill ends a handle as kill -9 ends its process: heartbeats stop, nothing
	// is withdrawn. Nil: the backend cannot show it.
	Kill func(t *testing.T, handle registry.Registry)
	// Wipe takes all records away behind the owners' backs, as a server that
	// restarts empty does. Nil: it cannot happen.
	Wipe func(t *testing.T)
	// Garbage puts a record that cannot be read, and a copy of a good one if
	// the store can hold that, under a service. Nil: it cannot happen.
	Garbage func(t *testing.T, service string)
}

// Run runs the whole suite against a backend.
func Run(t *testing.T, b Backend) {
	if b.Within == 0 {
		b.Within = time.Second
	}
	for _, group := range groups() {
		for _, c := range group.checks {
			t.Run(b.Name+"/"+group.name+"/"+c.name, func(t *testing.T) { b.run(t, c) })
		}
	}
}

func (b Backend) run(t *testing.T, c check) {
	// A store may want t.TempDir or a server, which belong outside the bubble.
	store := b.New(t)
	if c.needs != nil && !c.needs(b, store) {
		return // not a fault of this backend's kind; nothing is skipped silently: see doc.go
	}
	body := func(t *testing.T) { c.run(&bench{T: t, backend: b, store: store}) }
	if b.Bubble {
		synctest.Test(t, body)
		return
	}
	body(t)
}

// check is one test; needs says whether the backend has what it is about.
type check struct {
	name  string
	run   func(*bench)
	needs func(Backend, Store) bool
}

type group struct {
	name   string
	checks []check
}

func groups() []group {
	return []group{
		{"basic", basicChecks()},
		{"watch", watchChecks()},
		{"life", lifeChecks()},
		{"generation", generationChecks()},
		{"hub", hubChecks()},
		{"fault", faultChecks()},
	}
}

// bench is what a check works with.
type bench struct {
	*testing.T
	backend Backend
	store   Store
}

// open returns a further handle, closed at the end.
func (b *bench) open() registry.Registry {
	b.Helper()
	handle := b.store.Open(b.T)
	if closer, ok := handle.(io.Closer); ok {
		b.Cleanup(func() {
			if err := closer.Close(); err != nil {
				b.Errorf("close: %v", err)
			}
		})
	}
	return handle
}

func (b *bench) must(err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

// list reads a service.
func (b *bench) list(d kregistry.Discovery, name string) []*kregistry.ServiceInstance {
	b.Helper()
	list, err := d.GetService(b.Context(), name)
	b.must(err)
	return list
}

// until waits for a condition, at most as long as a change may take to be
// seen.
func (b *bench) until(what string, condition func() bool) {
	b.Helper()
	b.untilWithin(b.backend.Within, what, condition)
}

func (b *bench) untilWithin(bound time.Duration, what string, condition func() bool) {
	b.Helper()
	deadline := time.NewTimer(bound)
	defer deadline.Stop()
	tick := time.NewTicker(5 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			if !condition() {
				b.Fatalf("not within %s: %s", bound, what)
			}
			return
		}
	}
}

// sees waits until a handle lists exactly these ids.
func (b *bench) sees(d kregistry.Discovery, name string, want ...string) {
	b.Helper()
	b.until(fmt.Sprintf("%s lists %v", name, want), func() bool { return slices.Equal(ids(b.list(d, name)), want) })
}

// pass lets time go by.
func (b *bench) pass(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	<-timer.C
}

// never watches for a time that something does not happen.
func (b *bench) never(d time.Duration, what string, condition func() bool) {
	b.Helper()
	for end := time.Now().Add(d); time.Now().Before(end); b.pass(min(d, 10*time.Millisecond)) {
		if condition() {
			b.Fatalf("happened: %s", what)
		}
	}
}

func ids(list []*kregistry.ServiceInstance) []string {
	out := make([]string, 0, len(list))
	for _, in := range list {
		out = append(out, in.ID)
	}
	slices.Sort(out)
	return out
}

// user is an instance of service "user".
func user(id string) *kregistry.ServiceInstance { return instance("user", id) }

func instance(name, id string) *kregistry.ServiceInstance {
	return &kregistry.ServiceInstance{
		ID: id, Name: name, Version: "v1",
		Metadata:  map[string]string{"zone": "a"},
		Endpoints: []string{"grpc://10.0.0.1:9000", "http://10.0.0.1:8000"},
	}
}

// changed is the same instance with newer metadata.
func changed(in *kregistry.ServiceInstance, key, value string) *kregistry.ServiceInstance {
	out := registry.Clone(in)
	out.Metadata[key] = value
	return out
}

func short(parent context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	return context.WithTimeout(parent, d)
}
