package selector

import (
	"fmt"
	"strconv"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// DefaultWeight is the weight of an instance that names none, as in Kratos.
const DefaultWeight = 100

// weightKey is Kratos's metadata key of the weight.
const weightKey = "weight"

// Instance describes one instance of a service. It is read-only after
// creation; its identity is Address together with ID.
type Instance struct {
	ID       string // registered instance id, may be empty (dns)
	Service  string
	Version  string
	Scheme   string // "grpc", "grpcs", "http", ...
	Address  string // host:port
	Weight   int64  // share of traffic relative to the other instances; 0 drains
	Metadata map[string]string
}

// FromService describes the endpoint scheme://address of a registered
// instance. The weight comes from Metadata["weight"], DefaultWeight when
// absent. The Instance is never nil: a weight that is not a whole number of at
// least 0 is replaced by DefaultWeight and reported as the error. The metadata
// map is shared, not copied, and must not change any more. A nil in is an
// instance that is known by its address only.
func FromService(in *kregistry.ServiceInstance, scheme, address string) (*Instance, error) {
	out := &Instance{Scheme: scheme, Address: address, Weight: DefaultWeight}
	if in == nil {
		return out, nil
	}
	out.ID, out.Service, out.Version, out.Metadata = in.ID, in.Name, in.Version, in.Metadata
	text, ok := in.Metadata[weightKey]
	if !ok {
		return out, nil
	}
	weight, err := strconv.ParseInt(text, 10, 64)
	if err != nil || weight < 0 {
		return out, fmt.Errorf("selector: instance %q of %q at %s: metadata weight is %q, want a whole number of at least 0; using %d",
			in.ID, in.Name, address, text, DefaultWeight)
	}
	out.Weight = weight
	return out, nil
}
