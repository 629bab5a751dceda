package shield

import (
	"cmp"
	"context"
	"slices"
)

// WithPriority gives a call its place in the queue of a [Concurrency] layer with
// Priority: higher goes first. Calls without one have 0.
func WithPriority(ctx context.Context, priority int) context.Context {
	return context.WithValue(ctx, priorityKey{}, priority)
}

type priorityKey struct{}

func priorityOf(ctx context.Context) int {
	priority, _ := ctx.Value(priorityKey{}).(int)
	return priority
}

// waiter is a call in a queue. All but ready belongs to the lock of the layer.
type waiter struct {
	ready         chan struct{} // closed when fate is decided
	fate          fate
	priority      int
	line          *line // that it stands in; nil when it has left
	before, after *waiter
}

type fate uint8

const (
	undecided fate = iota
	granted
	evicted
)

func (w *waiter) decide(f fate) {
	w.fate = f
	close(w.ready)
}

// line is a first-in first-out list of waiters, each of which can leave at once
// from anywhere.
type line struct {
	priority    int
	first, last *waiter
	length      int
}

func (l *line) push(w *waiter) {
	w.line, w.before, w.after = l, l.last, nil
	if l.last == nil {
		l.first = w
	} else {
		l.last.after = w
	}
	l.last = w
	l.length++
}

func (l *line) remove(w *waiter) {
	if w.before == nil {
		l.first = w.after
	} else {
		w.before.after = w.after
	}
	if w.after == nil {
		l.last = w.before
	} else {
		w.after.before = w.before
	}
	w.line, w.before, w.after = nil, nil, nil
	l.length--
}

// queue is a line for each priority that somebody waits with, the lowest first.
type queue struct{ lines []*line }

func (q *queue) push(w *waiter) {
	i, found := slices.BinarySearchFunc(q.lines, w.priority, func(l *line, priority int) int {
		return cmp.Compare(l.priority, priority)
	})
	if !found {
		q.lines = slices.Insert(q.lines, i, &line{priority: w.priority})
	}
	q.lines[i].push(w)
}

func (q *queue) remove(w *waiter) {
	l := w.line
	l.remove(w)
	if l.length == 0 {
		i := slices.Index(q.lines, l)
		q.lines = slices.Delete(q.lines, i, i+1)
	}
}

// next returns the oldest waiter of the highest priority, nil for nobody.
func (q *queue) next() *waiter {
	if len(q.lines) == 0 {
		return nil
	}
	return q.lines[len(q.lines)-1].first
}

// least returns the newest waiter of the lowest priority, nil for nobody.
func (q *queue) least() *waiter {
	if len(q.lines) == 0 {
		return nil
	}
	return q.lines[0].last
}
