package app

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/go-kratos/kratos/v2/log"
)

// eventGrace is how long Run waits at its end for subscribers to take the last
// events.
const eventGrace = time.Second

// EventKind says what an [Event] is about.
type EventKind int

const (
	// StepBegan says that a step of the start or the stop begins; Step is its name.
	StepBegan EventKind = iota + 1
	// StepEnded says that it has ended after Took, with Err if it failed.
	StepEnded
	// Signaled says that a signal arrived; Text names it.
	Signaled
	// Warning says in Text what is wrong although the app goes on.
	Warning
)

// String returns the kind in words.
func (k EventKind) String() string {
	switch k {
	case StepBegan:
		return "step began"
	case StepEnded:
		return "step ended"
	case Signaled:
		return "signaled"
	case Warning:
		return "warning"
	default:
		return fmt.Sprintf("EventKind(%d)", int(k))
	}
}

// Event is one thing that happened in the life of an app. Its Kind says which
// of the other fields are set.
type Event struct {
	Kind EventKind
	Step string        // StepBegan, StepEnded: as in the lists of start.go and stop.go
	Took time.Duration // StepEnded
	Err  error         // StepEnded, Warning: the cause, if any
	Text string        // Signaled, Warning
}

// eventQueue hands events to subscribers and loggers, which may be slow, on a
// goroutine that exists only while there are events.
type eventQueue struct {
	subscribers []func(Event)

	mu      sync.Mutex
	waiting []Event
	busy    bool
	idle    chan struct{} // closed when not busy
}

func newEventQueue(o options) *eventQueue {
	idle := make(chan struct{})
	close(idle)
	q := &eventQueue{idle: idle}
	q.subscribers = append(q.subscribers, reporter(&o))
	q.subscribers = append(q.subscribers, o.events...)
	return q
}

// emit queues an event and never blocks. Events are few: some 20 in a life.
func (q *eventQueue) emit(e Event) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waiting = append(q.waiting, e)
	if !q.busy {
		q.busy, q.idle = true, make(chan struct{})
		go q.drain()
	}
}

func (q *eventQueue) drain() {
	for {
		q.mu.Lock()
		if len(q.waiting) == 0 {
			q.busy = false
			close(q.idle)
			q.mu.Unlock()
			return
		}
		e := q.waiting[0]
		q.waiting = q.waiting[1:]
		q.mu.Unlock()
		q.deliver(e)
	}
}

func (q *eventQueue) deliver(e Event) {
	for _, fn := range q.subscribers {
		func() {
			defer func() { _ = recover() }() // a subscriber's panic is not ours to die of
			fn(e)
		}()
	}
}

// flush waits until all events are taken, at most eventGrace.
func (q *eventQueue) flush() {
	q.mu.Lock()
	idle := q.idle
	q.mu.Unlock()
	grace := time.NewTimer(eventGrace)
	defer grace.Stop()
	select {
	case <-idle:
	case <-grace.C:
	}
}

// reporter logs the warnings. What Run returns is the caller's to print: a
// failed step is not logged here as well.
func reporter(o *options) func(Event) {
	switch {
	case o.logger != nil:
		return func(e Event) {
			if e.Kind == Warning {
				_ = o.logger.Log(log.LevelWarn, "msg", e.Text)
			}
		}
	case o.slog != nil:
		return func(e Event) {
			if e.Kind == Warning {
				o.slog.LogAttrs(context.Background(), slog.LevelWarn, "app: warning", slog.String("what", e.Text))
			}
		}
	}
	return func(Event) {}
}
