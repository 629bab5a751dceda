package registry

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// Snapshot is what a subscriber knows about a service.
type Snapshot struct {
	// Instances is the last good list, ordered by id. The instances are
	// private deep copies, shared by all subscribers: read them only. (Kratos's
	// ServiceInstance.Equal writes; use Equal of this package.) An instance
	// that did not change keeps its pointer from one Snapshot to the next.
	Instances []*kregistry.ServiceInstance
	// Answered says that discovery has answered at least once; an empty list
	// then means that there is no instance.
	Answered bool
	// Err is why the last read failed, nil after a good one. Instances stay
	// the last good ones.
	Err error
}

// view is what the hub knows about one service: pure, without clock, lock or
// goroutine. Its methods return whether subscribers see a difference, and what
// to report.
type view struct {
	service   string
	holdEmpty bool

	list     []*kregistry.ServiceInstance
	answered bool
	err      error
	held     bool
	faults   map[string]struct{} // of the last list, already reported
}

func (v *view) snapshot() Snapshot {
	return Snapshot{Instances: slices.Clone(v.list), Answered: v.answered, Err: v.err}
}

// known says whether there is anything to tell a new subscriber.
func (v *view) known() bool { return v.answered || v.err != nil }

// fail notes a failed read: the list stays.
func (v *view) fail(err error) (bool, []Event) {
	changed := v.err == nil
	v.err = err
	if !changed {
		return false, nil
	}
	return true, []Event{{Kind: ReadFailed, Service: v.service, Err: err}}
}

// apply notes a good read.
func (v *view) apply(list []*kregistry.ServiceInstance) (bool, []Event) {
	usable, events := v.usable(list)
	changed := v.err != nil || !v.answered
	if v.err != nil {
		v.err = nil
		events = append(events, Event{Kind: ReadRecovered, Service: v.service})
	}
	// A list of nothing but garbage has not said that there is no instance.
	garbage := len(list) > 0 && len(usable) == 0
	if v.answered && len(usable) == 0 && len(v.list) > 0 && (v.holdEmpty || garbage) {
		if !v.held {
			v.held = true
			events = append(events, Event{Kind: EmptyHeld, Service: v.service, Err: heldReason(len(v.list), garbage)})
		}
		return changed, events
	}
	v.held, v.answered = false, true
	merged, different := merge(v.list, usable)
	v.list = merged
	return changed || different, events
}

func heldReason(kept int, garbage bool) error {
	if garbage {
		return fmt.Errorf("no record of the list can be used; the last %d instances stay in use", kept)
	}
	return fmt.Errorf("the list is empty; the last %d instances stay in use", kept)
}

// usable sorts out the records that can be used, in a fixed order, and
// reports the others unless the last list had the same fault. It copies no
// instance and changes none.
func (v *view) usable(list []*kregistry.ServiceInstance) ([]*kregistry.ServiceInstance, []Event) {
	var events []Event
	faults := make(map[string]struct{})
	good := make([]*kregistry.ServiceInstance, 0, len(list))
	for _, in := range list {
		err := unusable(in)
		if err == nil {
			good = append(good, in)
			continue
		}
		event := skipped(in, err)
		event.Service = v.service
		key := event.String()
		if _, told := v.faults[key]; !told {
			if _, twice := faults[key]; !twice {
				events = append(events, event)
			}
		}
		faults[key] = struct{}{}
	}
	v.faults = faults
	slices.SortStableFunc(good, compareInstances)
	return slices.CompactFunc(good, Equal), events
}

// unusable says why nobody could call an instance: a record needs one
// endpoint that can be parsed.
func unusable(in *kregistry.ServiceInstance) error {
	if in == nil {
		return errors.New("the record is nil")
	}
	if len(in.Endpoints) == 0 {
		return errors.New("the record has no endpoint")
	}
	for _, raw := range in.Endpoints {
		if _, err := parseEndpoint(raw); err == nil {
			return nil
		}
	}
	_, err := Endpoints(in, "")
	return err
}

// merge returns the fresh list with every unchanged instance replaced by the
// old object, the others by copies, and whether anything differs. Both lists
// are ordered by compareInstances.
func merge(old, fresh []*kregistry.ServiceInstance) ([]*kregistry.ServiceInstance, bool) {
	out := make([]*kregistry.ServiceInstance, 0, len(fresh))
	kept, first := 0, 0
	for _, in := range fresh {
		for first < len(old) && old[first].ID < in.ID {
			first++
		}
		same := (*kregistry.ServiceInstance)(nil)
		for i := first; i < len(old) && old[i].ID == in.ID && same == nil; i++ {
			if Equal(old[i], in) {
				same = old[i]
			}
		}
		if same != nil {
			kept++
		} else {
			same = Clone(in)
		}
		out = append(out, same)
	}
	return out, kept != len(old) || kept != len(fresh)
}

func compareInstances(a, b *kregistry.ServiceInstance) int {
	if a == nil || b == nil {
		return compareNil(a, b)
	}
	return cmp.Or(cmp.Compare(a.ID, b.ID), cmp.Compare(a.Name, b.Name), cmp.Compare(a.Version, b.Version),
		slices.Compare(a.Endpoints, b.Endpoints))
}

// compareNil orders nil records first.
func compareNil(a, b *kregistry.ServiceInstance) int {
	switch {
	case a == b:
		return 0
	case a == nil:
		return -1
	}
	return 1
}
