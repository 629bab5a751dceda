package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry/internal/serial"
)

// closeBound is how long Close waits for code that we do not own.
const closeBound = 5 * time.Second

// ErrHubClosed is what a subscriber of a closed Hub is told.
var ErrHubClosed = errors.New("registry: the hub is closed")

// Hub shares one watch per service among all who subscribe to it, whatever
// the backend: it keeps the last good list, opens a lost watch again for ever
// (after 0.1 s, doubling to 3 s), and lists before and after each opening, so
// that no change falls between a list and its watch. It never trusts a
// backend to be quick, quiet or sane. A Hub is safe for concurrent use.
type Hub struct {
	discovery kregistry.Discovery
	holdEmpty bool
	events    Events

	mu      sync.Mutex
	closed  bool
	watches map[string]*watch
	busy    map[*watch]struct{} // loops that have not ended yet
	idle    chan struct{}       // closed when closed and no loop is left
}

// NewHub returns a hub over a discovery. It reads nothing and starts nothing
// until the first Subscribe.
func NewHub(d kregistry.Discovery, opts ...HubOption) *Hub {
	h := &Hub{
		discovery: d,
		holdEmpty: true,
		watches:   make(map[string]*watch),
		busy:      make(map[*watch]struct{}),
		idle:      make(chan struct{}),
	}
	for _, opt := range opts {
		if opt != nil {
			opt.applyHub(h)
		}
	}
	return h
}

// Subscribe calls fn with each new Snapshot of a service, the current one
// first when there is one, without blocking the caller. Calls of one fn are
// serialised; a slow fn misses Snapshots in between, never the newest, and
// holds up nobody else; its panic is an event. The first subscriber of a name
// starts its watch.
//
// After cancel has returned no call of fn begins. Cancel does not wait for a
// call that has begun, so it may be called from fn and under any lock; it may
// be called again. When the last subscriber leaves, the watch stops.
func (h *Hub) Subscribe(name string, fn func(Snapshot)) (cancel func()) {
	s := &subscriber{service: name, fn: fn, events: &h.events}
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed {
		s.offer(Snapshot{Err: ErrHubClosed})
		return s.cancel
	}
	w := h.watches[name]
	if w == nil {
		w = h.start(name)
	}
	w.add(s)
	return func() { h.unsubscribe(w, s) }
}

// start begins the watch of a name. h.mu is held.
func (h *Hub) start(name string) *watch {
	ctx, stop := context.WithCancel(context.Background())
	w := &watch{
		hub:         h,
		service:     name,
		stop:        stop,
		view:        view{service: name, holdEmpty: h.holdEmpty},
		subscribers: make(map[*subscriber]struct{}),
	}
	h.watches[name] = w
	h.busy[w] = struct{}{}
	go func() {
		defer h.ended(w)
		w.run(ctx)
	}()
	return w
}

func (h *Hub) ended(w *watch) {
	h.mu.Lock()
	defer h.mu.Unlock()
	delete(h.busy, w)
	if h.closed && len(h.busy) == 0 {
		close(h.idle)
	}
}

func (h *Hub) unsubscribe(w *watch, s *subscriber) {
	s.cancel()
	h.mu.Lock()
	defer h.mu.Unlock()
	if left := w.remove(s); left == 0 && h.watches[w.service] == w {
		delete(h.watches, w.service)
		w.stop()
	}
}

// Refresh asks the discovery to look again soon for a service, if it is a
// Refresher; else nothing happens, since a watch tells by itself. It returns
// as soon as the discovery does.
func (h *Hub) Refresh(name string) {
	refresher, ok := h.discovery.(Refresher)
	if !ok {
		return
	}
	if err := serial.Guard(func() { refresher.Refresh(name) }); err != nil {
		h.events.Send(Event{Kind: ReadFailed, Service: name, Err: err})
	}
}

// Close stops all watches, cancels all subscriptions and waits until the
// watches have ended, at most 5 s; the error names those that a backend holds
// up. A second Close waits likewise. Not to be called from a subscriber that
// a backend's answer depends on.
func (h *Hub) Close() error {
	h.mu.Lock()
	if !h.closed {
		h.closed = true
		for name, w := range h.watches {
			delete(h.watches, name)
			w.close()
		}
		if len(h.busy) == 0 {
			close(h.idle)
		}
	}
	h.mu.Unlock()

	bound := time.NewTimer(closeBound)
	defer bound.Stop()
	select {
	case <-h.idle:
		return nil
	case <-bound.C:
		return fmt.Errorf("registry: hub: the discovery did not let go of %s within %s", h.busyNames(), closeBound)
	}
}

func (h *Hub) busyNames() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	names := make([]string, 0, len(h.busy))
	for w := range h.busy {
		names = append(names, fmt.Sprintf("%q", w.service))
	}
	slices.Sort(names)
	return strings.Join(names, ", ")
}
