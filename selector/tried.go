package selector

import (
	"context"
	"sync/atomic"
)

// Tried is the set of nodes that a call has tried or is trying. It belongs to
// the call and is shared by its attempts; the zero value is ready, it must not
// be copied. The first 8 nodes are stored inline, each further one costs an
// allocation. All methods are safe for concurrent use and never block; a nil
// *Tried is an empty set.
type Tried struct {
	inline [8]atomic.Pointer[Node] // filled in order, never emptied
	more   atomic.Pointer[triedLink]
}

type triedLink struct {
	node *Node
	next *triedLink
}

// Add puts n into the set; adding it again changes nothing.
func (t *Tried) Add(n *Node) {
	if n == nil {
		return
	}
	for i := range t.inline {
		if t.inline[i].CompareAndSwap(nil, n) || t.inline[i].Load() == n {
			return
		}
	}
	link := &triedLink{node: n}
	for {
		head := t.more.Load()
		if head.has(n) {
			return
		}
		link.next = head
		if t.more.CompareAndSwap(head, link) {
			return
		}
	}
}

// Has reports whether n is in the set.
func (t *Tried) Has(n *Node) bool {
	if t == nil {
		return false
	}
	for i := range t.inline {
		switch t.inline[i].Load() {
		case n:
			return n != nil
		case nil:
			return false
		}
	}
	return t.more.Load().has(n)
}

// Len is the number of nodes in the set.
func (t *Tried) Len() int {
	if t == nil {
		return 0
	}
	for i := range t.inline {
		if t.inline[i].Load() == nil {
			return i
		}
	}
	count := len(t.inline)
	for l := t.more.Load(); l != nil; l = l.next {
		count++
	}
	return count
}

func (l *triedLink) has(n *Node) bool {
	for ; l != nil; l = l.next {
		if l.node == n {
			return true
		}
	}
	return false
}

type triedKey struct{}

// NewTriedContext makes a ctx with which a Kratos selector of this package
// prefers nodes that are not in t, and adds the one it selects. A retry in a
// Kratos application wraps its calls with one such ctx; materpc's own client
// needs none.
func NewTriedContext(ctx context.Context, t *Tried) context.Context {
	return context.WithValue(ctx, triedKey{}, t)
}

// TriedFromContext returns the set of NewTriedContext, nil when there is none.
func TriedFromContext(ctx context.Context) *Tried {
	t, _ := ctx.Value(triedKey{}).(*Tried)
	return t
}
