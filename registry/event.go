package registry

import (
	"context"
	"fmt"
	"strings"

	"github.com/materpc/materpc/registry/internal/serial"
)

// EventKind says what an Event is about.
type EventKind int

// The kinds of events. None of them is sent per call or per pick.
const (
	// RecordSkipped: a record of a list cannot be used; sent once per change
	// of the record or of its fault, not once per list.
	RecordSkipped EventKind = iota + 1
	// EmptyHeld: an empty list came after a non-empty one and was not applied.
	EmptyHeld
	// ReadFailed: the list cannot be read; sent once per outage.
	ReadFailed
	// ReadRecovered: the list can be read again.
	ReadRecovered
	// WatchLost: a watch ended without being asked to; it is opened again.
	WatchLost
	// WatcherStuck: a Watcher did not end in time when it was stopped; its
	// goroutine is the backend's fault.
	WatcherStuck
	// SubscriberPanicked: a subscriber's function panicked.
	SubscriberPanicked
	// WriteResolved: a write without a clear answer was found done by reading
	// back.
	WriteResolved
	// LateWriteUndone: a Register that had been given up landed after all and
	// was undone.
	LateWriteUndone
	// LateWriteKept: a Register that had been given up may have landed and
	// could not be undone.
	LateWriteKept
	// RecordRestored: a backend wrote a record again that had disappeared or
	// been changed behind its owner.
	RecordRestored
	// HeartbeatFailed: a backend could not renew a record; sent once per
	// outage, it goes on trying.
	HeartbeatFailed
	// RecordContested: another owner has written a record under the same name
	// and id.
	RecordContested
)

var eventNames = map[EventKind]string{
	RecordSkipped:      "record skipped",
	EmptyHeld:          "empty list held",
	ReadFailed:         "read failed",
	ReadRecovered:      "read recovered",
	WatchLost:          "watch lost",
	WatcherStuck:       "watcher stuck",
	SubscriberPanicked: "subscriber panicked",
	WriteResolved:      "write resolved by reading back",
	LateWriteUndone:    "late write undone",
	LateWriteKept:      "late write not undone",
	RecordRestored:     "record restored",
	HeartbeatFailed:    "heartbeat failed",
	RecordContested:    "record contested",
}

// String returns the kind in words.
func (k EventKind) String() string {
	if name, ok := eventNames[k]; ok {
		return name
	}
	return fmt.Sprintf("event %d", int(k))
}

// Event is one thing that happened in a registry, for logs and consoles.
type Event struct {
	Kind EventKind
	// Service is the name of the service concerned.
	Service string
	// Instance is the id of the instance concerned, or empty.
	Instance string
	// Err is the cause, or nil.
	Err error
}

// String returns the event as one line.
func (e Event) String() string {
	var b strings.Builder
	b.WriteString(e.Kind.String())
	if e.Service != "" {
		fmt.Fprintf(&b, " service=%q", e.Service)
	}
	if e.Instance != "" {
		fmt.Fprintf(&b, " instance=%q", e.Instance)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	return b.String()
}

type listenerKey struct{}

// NewListenerContext returns a ctx for a backend's Register that says who wants
// to hear of the record from now on. fn returns at once and does not panic,
// as [Events.Send] does. A [Registration] passes its own receivers on this
// way, through whatever wraps the backend.
func NewListenerContext(ctx context.Context, fn func(Event)) context.Context {
	return context.WithValue(ctx, listenerKey{}, fn)
}

// ListenerFromContext returns the listener in a ctx given to Register, or nil.
// A backend tells it what becomes of the record until that is withdrawn.
func ListenerFromContext(ctx context.Context) func(Event) {
	fn, _ := ctx.Value(listenerKey{}).(func(Event))
	return fn
}

// Events hands events to functions that we do not own: one after another, on
// a goroutine of their own, panics caught, so a slow or broken function never
// holds up a watch or a heartbeat. Beyond 1,024 waiting events new ones are
// dropped. The zero value has no receivers. It is exported for backends.
type Events struct {
	receivers []func(Event)
	queue     serial.Queue
}

// Receive adds a receiver; nil is ignored. Not safe once events are sent.
func (e *Events) Receive(fn func(Event)) {
	if fn != nil {
		e.receivers = append(e.receivers, fn)
	}
}

// Send hands an event to every receiver and returns at once.
func (e *Events) Send(event Event) {
	for _, fn := range e.receivers {
		e.queue.Do(func() { fn(event) })
	}
}
