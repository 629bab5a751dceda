package local

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
)

// table is what one reader has seen of the directory: pure, without clock,
// lock or goroutine. Time comes in as "so much of it has been watched since
// the last look", from the reader's own monotonic clock; no clock of another
// process and no file time is ever compared.
type table struct {
	sightings map[string]*sighting // by file name
}

// sighting is one file as seen last.
type sighting struct {
	raw      []byte
	good     *record // the last version that could be read, or nil
	age      time.Duration
	orphaned bool // the directory was wiped under it
	fault    string
}

func newTable() *table { return &table{sightings: make(map[string]*sighting)} }

// look notes a whole look at the directory, after watching it for elapsed.
// Files that are there but cannot be read are found as nil.
func (t *table) look(found map[string][]byte, elapsed time.Duration) []registry.Event {
	var events []registry.Event
	for name, s := range t.sightings {
		if _, there := found[name]; there {
			continue
		}
		s.age += elapsed
		// A file that is gone was withdrawn by its owner, unless the whole
		// directory was wiped: then the owner writes it again, or it expires.
		if !s.orphaned || s.age >= expiry {
			delete(t.sightings, name)
		}
	}
	for name, raw := range found {
		events = append(events, t.see(name, raw, elapsed)...)
	}
	return events
}

// wipe notes that the directory itself was missing.
func (t *table) wipe(elapsed time.Duration) {
	for name, s := range t.sightings {
		s.orphaned = true
		if s.age += elapsed; s.age >= expiry {
			delete(t.sightings, name)
		}
	}
}

// see notes one file.
func (t *table) see(name string, raw []byte, elapsed time.Duration) []registry.Event {
	s := t.sightings[name]
	if s == nil {
		s = &sighting{}
		t.sightings[name] = s
	} else if bytes.Equal(s.raw, raw) {
		s.age += elapsed
		return nil
	}
	if isTemp(name) {
		s.raw, s.age = raw, 0
		return nil
	}
	if raw == nil {
		return s.skip(errors.New("file "+name+" cannot be read"), elapsed)
	}
	if s.good != nil && s.fault == "" && sameButBeat(s.raw, raw) {
		s.raw, s.age, s.orphaned = raw, 0, false
		return nil
	}
	return s.read(name, raw, elapsed)
}

// read takes a file whose content is new. What cannot be read is no sign of
// life: the last good version stays until it expires.
func (s *sighting) read(name string, raw []byte, elapsed time.Duration) []registry.Event {
	s.raw = raw
	fresh, err := decode(name, raw)
	if err != nil {
		return s.skip(err, elapsed)
	}
	if s.good != nil && registry.Equal(s.good.Instance, fresh.Instance) {
		fresh.Instance = s.good.Instance // the same object says: nothing new
	}
	s.good, s.fault, s.age, s.orphaned = fresh, "", 0, false
	return nil
}

// skip passes over content that cannot be used, and reports it once.
func (s *sighting) skip(err error, elapsed time.Duration) []registry.Event {
	s.age += elapsed
	if s.fault == err.Error() {
		return nil
	}
	s.fault = err.Error()
	event := registry.Event{Kind: registry.RecordSkipped, Err: err}
	if s.good != nil {
		event.Service, event.Instance = s.good.Instance.Name, s.good.Instance.ID
	}
	return []registry.Event{event}
}

// live lists the records of exactly that service that have not expired, by
// id. The instances are the table's: read only.
func (t *table) live(service string) []*kregistry.ServiceInstance {
	list := []*kregistry.ServiceInstance{}
	for _, s := range t.sightings {
		if s.good != nil && s.age < expiry && s.good.Instance.Name == service {
			list = append(list, s.good.Instance)
		}
	}
	slices.SortFunc(list, func(a, b *kregistry.ServiceInstance) int { return strings.Compare(a.ID, b.ID) })
	return list
}

// dead lists the files that have not changed for so long that their owner is
// gone for good: whole records of ours and temporary files, nothing else.
func (t *table) dead() map[string][]byte {
	found := make(map[string][]byte)
	for name, s := range t.sightings {
		if s.age >= burial && !s.orphaned && (isTemp(name) || s.good != nil && s.fault == "") {
			found[name] = s.raw
		}
	}
	return found
}

// forget drops what is known of a file.
func (t *table) forget(name string) { delete(t.sightings, name) }

var errClosed = errors.New("local registry: it is closed")
