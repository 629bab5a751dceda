package grpc

import (
	"maps"
	"slices"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/selector"
)

// holders say which record an address belongs to that several records name. It
// happens when a process was killed and started again at its address: until the
// old record expires both are listed, and with the old id the new process's
// proofs prove nothing. No clock of another process is asked. What this client
// saw decides: a record that appeared while another was there is newer. Of those
// that it met together it takes the first, until a proof names another one; one
// proof a set of records, since an address that leads to several living
// processes would make them take turns.
type holders map[string]holder

type holder struct {
	id     string
	ids    []string // of all records of the address
	proved bool
}

// choose returns the record of an address among several. before are the records
// of the list before, of all addresses.
func (h holders) choose(records []*selector.Instance, before map[instanceID]struct{}) *selector.Instance {
	address := records[0].Address
	previous, contested := h[address]
	var newest, held, first *selector.Instance
	ids := make([]string, 0, len(records))
	for _, in := range records {
		ids = append(ids, in.ID)
		if _, known := before[instanceID{address, in.ID}]; !known {
			newest = in
			continue
		}
		if first == nil {
			first = in
		}
		if contested && in.ID == previous.id {
			held = in
		}
	}
	switch {
	case first == nil: // met together
		newest = records[0]
	case newest != nil:
	case held != nil:
		h[address] = holder{id: held.ID, ids: ids, proved: previous.proved}
		return held
	default:
		newest = first
	}
	h[address] = holder{id: newest.ID, ids: ids}
	return newest
}

// described are the addresses and ids of a list.
func described(known map[*kregistry.ServiceInstance]*selector.Instance) map[instanceID]struct{} {
	ids := make(map[instanceID]struct{}, len(known))
	for _, in := range known {
		if in != nil {
			ids[instanceID{in.Address, in.ID}] = struct{}{}
		}
	}
	return ids
}

// settle gives each contested address in list to one record, and forgets those
// that are no longer contested.
func (h holders) settle(list []listed, rivals map[string][]*selector.Instance, known map[*kregistry.ServiceInstance]*selector.Instance) {
	maps.DeleteFunc(h, func(address string, _ holder) bool { return rivals[address] == nil })
	if len(rivals) == 0 {
		return
	}
	before := described(known)
	for i, entry := range list {
		if records := rivals[entry.Address]; records != nil {
			list[i].Instance = h.choose(records, before)
		}
	}
}

// prove notes that the process at address says it is id.
func (h holders) prove(address, id string) bool {
	is := h[address]
	if is.proved || is.id == id || !slices.Contains(is.ids, id) {
		return false
	}
	h[address] = holder{id: id, ids: is.ids, proved: true}
	return true
}

// mistaken is called when the process at address proves to be another one than
// the record in use says. The call that learned it does not wait.
func (c *client) mistaken(address, id string) {
	if r := c.discovered.Load(); r != nil {
		time.AfterFunc(0, func() { r.prove(address, id) })
	}
}

// prove uses the record that a proof named, if it is listed for the address.
func (r *discoveryResolver) prove(address, id string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.closed && r.holders.prove(address, id) {
		r.put()
	}
}
