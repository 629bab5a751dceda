package shield

import "sync"

// transitions tells an observer of changes one after another and in their order,
// whoever makes them: a change made by the observer itself, or while it runs,
// waits for its turn. A panic of the observer ends that one delivery.
type transitions struct {
	mu      sync.Mutex
	fn      func(from, to string)
	queue   []transition
	telling bool
}

type transition struct{ from, to string }

func (t *transitions) observe(fn func(from, to string)) {
	t.mu.Lock()
	t.fn = fn
	t.mu.Unlock()
}

// add notes a change. The caller holds the lock under which it is made, so that
// the order here is the order of the changes.
func (t *transitions) add(from, to string) {
	t.mu.Lock()
	if t.fn != nil {
		t.queue = append(t.queue, transition{from, to})
	}
	t.mu.Unlock()
}

// tell delivers what is due, unless somebody is at it already. No lock is held
// while the observer runs.
func (t *transitions) tell() {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.telling {
		return
	}
	t.telling = true
	defer func() { t.telling = false }() // also when the observer ends the goroutine
	for len(t.queue) > 0 {
		next := t.queue[0]
		t.queue = t.queue[1:]
		t.deliver(next)
	}
}

func (t *transitions) deliver(next transition) {
	fn := t.fn
	t.mu.Unlock()
	defer t.mu.Lock()
	defer func() { _ = recover() }() // a broken observer must not break the call
	fn(next.from, next.to)
}
