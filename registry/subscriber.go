package registry

import (
	"sync"

	"github.com/materpc/materpc/registry/internal/serial"
)

// subscriber is one function that wants the Snapshots of a service. It has
// room for one Snapshot, the newest, so a slow function costs no memory.
type subscriber struct {
	service string
	fn      func(Snapshot)
	events  *Events
	queue   serial.Queue

	mu        sync.Mutex
	cancelled bool
	newest    *Snapshot
}

// offer hands a Snapshot over and returns at once.
func (s *subscriber) offer(snapshot Snapshot) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cancelled {
		return
	}
	waiting := s.newest != nil
	s.newest = &snapshot
	if !waiting {
		s.queue.Do(s.deliver)
	}
}

func (s *subscriber) cancel() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cancelled, s.newest = true, nil
}

func (s *subscriber) take() *Snapshot {
	s.mu.Lock()
	defer s.mu.Unlock()
	snapshot := s.newest
	s.newest = nil
	return snapshot
}

func (s *subscriber) deliver() {
	snapshot := s.take()
	if snapshot == nil || s.fn == nil {
		return
	}
	if err := serial.Guard(func() { s.fn(*snapshot) }); err != nil {
		s.events.Send(Event{Kind: SubscriberPanicked, Service: s.service, Err: err})
	}
}
