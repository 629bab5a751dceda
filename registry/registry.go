package registry

import (
	"maps"
	"slices"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// Registry is what our backends are: both halves of Kratos's registry.
//
// Register writes a record under (Name, ID) and keeps it alive until
// Deregister: the heartbeat belongs to the backend and does not depend on the
// ctx given to Register. Registering the same (Name, ID) again replaces the
// data; a replacement that fails leaves the record and its heartbeat alone.
// Deregister of an absent record returns nil. GetService answers an unknown
// name with an empty list and no error: an error means "cannot be read". Lists
// are deep copies that belong to the caller. All methods are safe for
// concurrent use.
type Registry interface {
	kregistry.Registrar
	kregistry.Discovery
}

// Clone returns a deep copy: nothing in it is shared with in. Nil stays nil,
// also for the metadata map and the endpoints.
func Clone(in *kregistry.ServiceInstance) *kregistry.ServiceInstance {
	if in == nil {
		return nil
	}
	out := *in
	out.Metadata = maps.Clone(in.Metadata)
	out.Endpoints = slices.Clone(in.Endpoints)
	return &out
}

// CloneAll returns deep copies of a list, never nil.
func CloneAll(list []*kregistry.ServiceInstance) []*kregistry.ServiceInstance {
	out := make([]*kregistry.ServiceInstance, len(list))
	for i, in := range list {
		out[i] = Clone(in)
	}
	return out
}

// Equal says whether two instances describe the same thing: the order of the
// endpoints does not matter, an empty map equals a nil one. Unlike Kratos's
// ServiceInstance.Equal it changes neither of them, so it may be used on
// shared instances.
func Equal(a, b *kregistry.ServiceInstance) bool {
	if a == nil || b == nil {
		return a == b
	}
	return a.ID == b.ID && a.Name == b.Name && a.Version == b.Version &&
		sameEndpoints(a.Endpoints, b.Endpoints) && maps.Equal(a.Metadata, b.Metadata)
}

func sameEndpoints(a, b []string) bool {
	if slices.Equal(a, b) {
		return true
	}
	if len(a) != len(b) {
		return false
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// EqualLists says whether two lists hold equal instances, in any order.
func EqualLists(a, b []*kregistry.ServiceInstance) bool {
	if len(a) != len(b) {
		return false
	}
	a, b = sorted(a), sorted(b)
	return slices.EqualFunc(a, b, Equal)
}

// sorted returns a new slice of the same instances in a fixed order.
func sorted(list []*kregistry.ServiceInstance) []*kregistry.ServiceInstance {
	out := slices.Clone(list)
	slices.SortStableFunc(out, compareInstances)
	return out
}

// Refresher is a Discovery that can be asked to look again soon, such as one
// over DNS after a connection was lost. Refresh returns at once.
type Refresher interface {
	Refresh(service string)
}
