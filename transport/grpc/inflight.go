package grpc

import (
	"math/rand/v2"
	"sync"
)

// inflightShards is a power of two, enough that calls on different cores
// seldom meet.
const inflightShards = 16

// inflight holds the running calls of a server: one intrusive list a shard, so
// that entering costs no allocation and leaving no search.
type inflight struct {
	shards  [inflightShards]inflightShard
	changed chan struct{} // made by the drain, which alone listens
}

type inflightShard struct {
	mu       sync.Mutex
	head     *serverCall
	business int      // calls of user code in the list
	_        [40]byte // a shard a cache line
}

// inflightLinks is a call's place in its shard.
type inflightLinks struct {
	next, previous *serverCall
	shard          uint8
}

// add is called before the caller looks at the drain mark: the other order
// lets the drain miss a call.
func (f *inflight) add(c *serverCall) {
	n := uint8(rand.Uint32() & (inflightShards - 1))
	c.links.shard = n
	s := &f.shards[n]
	s.mu.Lock()
	c.links.next = s.head
	if s.head != nil {
		s.head.links.previous = c
	}
	s.head = c
	if !c.method.builtin {
		s.business++
	}
	s.mu.Unlock()
}

func (f *inflight) remove(c *serverCall) {
	s := &f.shards[c.links.shard]
	s.mu.Lock()
	if c.links.previous != nil {
		c.links.previous.links.next = c.links.next
	} else {
		s.head = c.links.next
	}
	if c.links.next != nil {
		c.links.next.links.previous = c.links.previous
	}
	c.links.next, c.links.previous = nil, nil
	if !c.method.builtin {
		s.business--
	}
	s.mu.Unlock()
}

// notify wakes the drain after a call has left.
func (f *inflight) notify() {
	select {
	case f.changed <- struct{}{}:
	default: // it has not taken the last one yet and will look again
	}
}

// idle says that no user code runs. Unlike business it costs the same however
// many calls there are: a drain asks after each of them.
func (f *inflight) idle() bool {
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		left := s.business
		s.mu.Unlock()
		if left > 0 {
			return false
		}
	}
	return true
}

// business returns the running calls of user code: those of built-in services
// hold nothing up.
func (f *inflight) business() []*serverCall {
	var calls []*serverCall
	for i := range f.shards {
		s := &f.shards[i]
		s.mu.Lock()
		for c := s.head; c != nil; c = c.links.next {
			if !c.method.builtin {
				calls = append(calls, c)
			}
		}
		s.mu.Unlock()
	}
	return calls
}
