package shield

import (
	"sync"
	"sync/atomic"
)

// Live is a shield that can be replaced while calls run. Calls finish on the
// shield that they began with. Safe for concurrent use.
type Live struct {
	mu      sync.Mutex // one Swap at a time
	current atomic.Pointer[Shield]
}

// NewLive returns a Live with its first shield.
func NewLive(name string, layers ...Layer) (*Live, error) {
	s, err := New(name, layers...)
	if err != nil {
		return nil, err
	}
	l := &Live{}
	l.current.Store(s)
	return l, nil
}

// Shield returns the shield in force, without allocating.
func (l *Live) Shield() *Shield { return l.current.Load() }

// Swap puts new layers in force. A layer that is equal to one before, under an
// equal clause, goes on with its state: a breaker stays open, a rate stays used
// up. On a fault the shield before stays.
func (l *Live) Swap(layers ...Layer) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	before := l.current.Load()
	nodes, err := plan(before.name, layers, append([]node(nil), before.nodes...))
	if err != nil {
		return err
	}
	l.current.Store(assemble(before.name, nodes))
	return nil
}
