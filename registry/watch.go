package registry

import (
	"context"
	"errors"
	"sync"
	"sync/atomic"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry/internal/serial"
)

// Bounds on a backend that does not keep its ctx, and the pace of retries.
const (
	readBound  = 3 * time.Second // one GetService
	openBound  = 5 * time.Second // one Watch
	stopBound  = time.Second     // the end of a Watcher
	firstPause = 100 * time.Millisecond
	lastPause  = 3 * time.Second
	// equalPushes is how many pushes within a second may change nothing before
	// each further one costs firstPause: a watcher whose source is broken
	// answers at once for ever.
	equalPushes = 10
)

var (
	errStillReading = errors.New("the previous GetService has not answered yet")
	errNoDiscovery  = errors.New("registry: the hub has no discovery")
	errNoWatcher    = errors.New("the backend returned neither a watcher nor an error")
)

// watch is the one watch of a service: its loop, its view, its subscribers.
type watch struct {
	hub     *Hub
	service string
	stop    context.CancelFunc
	reading atomic.Bool // a GetService is under way, perhaps abandoned

	mu          sync.Mutex
	view        view
	subscribers map[*subscriber]struct{}
}

func (w *watch) add(s *subscriber) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.subscribers[s] = struct{}{}
	if w.view.known() {
		s.offer(w.view.snapshot())
	}
}

func (w *watch) remove(s *subscriber) (left int) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.subscribers, s)
	return len(w.subscribers)
}

func (w *watch) close() {
	w.stop()
	w.mu.Lock()
	defer w.mu.Unlock()
	for s := range w.subscribers {
		s.cancel()
	}
}

// publish applies the outcome of a read and tells the subscribers if they can
// see a difference, which it returns.
func (w *watch) publish(list []*kregistry.ServiceInstance, err error) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	var (
		changed bool
		events  []Event
	)
	// A backend may hand out a list that it goes on writing to; a panic while
	// comparing must not end the watch.
	fault := serial.Guard(func() {
		if err != nil {
			changed, events = w.view.fail(err)
			return
		}
		changed, events = w.view.apply(list)
	})
	if fault != nil {
		changed, events = w.view.fail(fault)
	}
	for _, event := range events {
		w.hub.events.Send(event)
	}
	if changed {
		snapshot := w.view.snapshot()
		for s := range w.subscribers {
			s.offer(snapshot)
		}
	}
	return changed
}

// run keeps a session open until ctx ends.
func (w *watch) run(ctx context.Context) {
	pause := firstPause
	for ctx.Err() == nil {
		began := time.Now()
		err := w.session(ctx)
		if ctx.Err() != nil {
			return
		}
		w.hub.events.Send(Event{Kind: WatchLost, Service: w.service, Err: err})
		if time.Since(began) > lastPause {
			pause = firstPause // it had worked
		}
		rest(ctx, pause)
		pause = min(2*pause, lastPause)
	}
}

// rest waits for a pause or the end of ctx.
func rest(ctx context.Context, pause time.Duration) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// session lists, watches, lists again, and follows the watch to its end,
// which is never nil unless ctx ended.
func (w *watch) session(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	_ = w.read(ctx) // its failure is published, and the watch may still work
	watcher, err := w.open(ctx)
	if err != nil {
		return err
	}
	pushes := make(chan push)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		follow(ctx, watcher, pushes)
	}()
	defer w.release(watcher, cancel, ended)
	// What changed between the list and the watch is in this list; what
	// changes from here on, in a push.
	return w.consume(ctx, pushes, w.read(ctx) == nil)
}

// push is one answer of a Watcher.
type push struct {
	list []*kregistry.ServiceInstance
	err  error
}

// follow asks a watcher until it fails or ctx ends.
func follow(ctx context.Context, watcher kregistry.Watcher, pushes chan<- push) {
	for ctx.Err() == nil {
		var p push
		if fault := serial.Guard(func() { p.list, p.err = watcher.Next() }); fault != nil {
			p = push{err: fault}
		}
		select {
		case pushes <- p:
		case <-ctx.Done():
			return
		}
		if p.err != nil {
			return
		}
	}
}

// consume publishes pushes. While the list is unreadable it is read again,
// since a watch alone may stay silent for ever.
func (w *watch) consume(ctx context.Context, pushes <-chan push, readable bool) error {
	pause := firstPause
	var spin pacer
	retry := time.NewTimer(pause)
	defer retry.Stop()
	for {
		var again <-chan time.Time
		if !readable {
			again = retry.C
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-again:
			pause = min(2*pause, lastPause)
			readable = w.read(ctx) == nil
			retry.Reset(pause)
		case p := <-pushes:
			if p.err != nil {
				return p.err
			}
			readable = true
			if !w.publish(p.list, nil) {
				spin.rest(ctx)
			}
		}
	}
}

// pacer slows down a watcher that has nothing to say and does not stop.
type pacer struct {
	since time.Time
	equal int
}

func (p *pacer) rest(ctx context.Context) {
	if time.Since(p.since) > time.Second {
		p.since, p.equal = time.Now(), 0
	}
	if p.equal++; p.equal > equalPushes {
		rest(ctx, firstPause)
	}
}

// read lists once and publishes the outcome. An answer that comes after its
// time is dropped: a newer one may have been published since.
func (w *watch) read(ctx context.Context) error {
	if w.hub.discovery == nil {
		w.publish(nil, errNoDiscovery)
		return errNoDiscovery
	}
	if !w.reading.CompareAndSwap(false, true) {
		w.publish(nil, errStillReading)
		return errStillReading
	}
	bound, cancel := context.WithTimeout(ctx, readBound)
	defer cancel()
	list, _, err := serial.Bounded(bound, func() ([]*kregistry.ServiceInstance, error) {
		defer w.reading.Store(false)
		return w.hub.discovery.GetService(bound, w.service)
	}, nil)
	if ctx.Err() != nil {
		return ctx.Err() // our own end is no failure of the backend
	}
	w.publish(list, err)
	return err
}

// open opens a watch whose life is ctx's. One that comes too late is stopped.
func (w *watch) open(ctx context.Context) (kregistry.Watcher, error) {
	if w.hub.discovery == nil {
		return nil, errNoDiscovery
	}
	bound, cancel := context.WithTimeout(ctx, openBound)
	defer cancel()
	watcher, _, err := serial.Bounded(bound, func() (kregistry.Watcher, error) {
		return w.hub.discovery.Watch(ctx, w.service)
	}, func(late kregistry.Watcher, _ error) {
		if late != nil {
			_ = late.Stop()
		}
	})
	if err == nil && watcher == nil {
		return nil, errNoWatcher
	}
	return watcher, err
}

// release ends a watcher and its follower, in a bounded time.
func (w *watch) release(watcher kregistry.Watcher, cancel context.CancelFunc, ended <-chan struct{}) {
	cancel()
	bound, done := context.WithTimeout(context.Background(), stopBound)
	defer done()
	_, stopped, err := serial.Bounded(bound, func() (struct{}, error) {
		return struct{}{}, watcher.Stop()
	}, nil)
	var panicked *serial.PanicError
	if errors.As(err, &panicked) || !stopped {
		w.hub.events.Send(Event{Kind: WatcherStuck, Service: w.service, Err: err})
	}
	select {
	case <-ended:
	case <-bound.Done():
		w.hub.events.Send(Event{Kind: WatcherStuck, Service: w.service, Err: errors.New("Next did not return after Stop")})
	}
}
