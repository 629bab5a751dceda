package static

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"strconv"
	"strings"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/internal/feed"
)

// Discovery answers every name with one list. Safe for concurrent use.
type Discovery struct {
	instances []*kregistry.ServiceInstance
}

var _ kregistry.Discovery = (*Discovery)(nil)

// New returns a discovery of these instances, which it copies. Each needs an
// endpoint that can be parsed; all faults are reported at once. An instance
// without a name takes the name that is asked for.
func New(instances ...*kregistry.ServiceInstance) (*Discovery, error) {
	var faults []error
	for i, in := range instances {
		usable, err := registry.Endpoints(in, "")
		if err == nil && len(usable) == 0 {
			err = errors.New("it has no endpoint")
		}
		if err != nil {
			faults = append(faults, fmt.Errorf("static list: instance %d: %w", i+1, err))
		}
	}
	if len(instances) == 0 {
		faults = append(faults, errors.New("static list: it is empty; give at least one address such as 10.0.0.1:9000"))
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return &Discovery{instances: registry.CloneAll(instances)}, nil
}

// Parse reads a list of addresses separated by commas:
//
//	ADDRESS[?weight=N]
//
// where ADDRESS is host:port (scheme grpc) or an endpoint such as
// grpcs://[2001:db8::1]:443, and N is 0 (drained) or more. All faults are
// reported at once; an address that is there twice is one.
func Parse(list string) (*Discovery, error) {
	var (
		instances []*kregistry.ServiceInstance
		faults    []error
		seen      = make(map[string]bool)
	)
	for _, entry := range strings.Split(list, ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		in, err := parseEntry(entry)
		if err != nil {
			faults = append(faults, fmt.Errorf("static list: %w", err))
			continue
		}
		if seen[in.Endpoints[0]] {
			continue
		}
		seen[in.Endpoints[0]] = true
		instances = append(instances, in)
	}
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	return New(instances...)
}

func parseEntry(entry string) (*kregistry.ServiceInstance, error) {
	address, query, _ := strings.Cut(entry, "?")
	if !strings.Contains(address, "://") {
		address = "grpc://" + address
	}
	e, err := registry.ParseEndpoint(address)
	if err != nil {
		return nil, fmt.Errorf("entry %q: %w", entry, err)
	}
	in := &kregistry.ServiceInstance{Endpoints: []string{e.String()}}
	values, err := url.ParseQuery(query)
	if err != nil {
		return nil, fmt.Errorf("entry %q: %w", entry, err)
	}
	for key := range values {
		if key != "weight" {
			return nil, fmt.Errorf("entry %q: unknown setting %q; known: weight", entry, key)
		}
		weight := values.Get(key)
		if _, err := strconv.ParseUint(weight, 10, 31); err != nil {
			return nil, fmt.Errorf("entry %q: weight %q is not a number from 0", entry, weight)
		}
		in.Metadata = map[string]string{key: weight}
	}
	return in, nil
}

// GetService returns copies of the list under the name that is asked for.
func (d *Discovery) GetService(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	return d.list(name), nil
}

// Watch returns a watcher that has the list once; it ends with ctx or Stop.
func (d *Discovery) Watch(ctx context.Context, name string) (kregistry.Watcher, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	f := feed.New(ctx)
	f.Push(d.list(name))
	return f, nil
}

func (d *Discovery) list(name string) []*kregistry.ServiceInstance {
	list := registry.CloneAll(d.instances)
	for _, in := range list {
		if in.Name == "" {
			in.Name = name
		}
	}
	return list
}
