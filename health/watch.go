package health

import "sync"

// watcher is one subscriber. It is told the newest status whenever that differs
// from what it was told last; its fields are guarded by State.mu.
type watcher struct {
	service string
	fn      func(Status)
	told    Status
	latest  Status
	telling bool // a goroutine is in fn or about to be
	gone    bool
}

// Watch tells fn the status of a service: the first one on the caller's
// goroutine before Watch returns (it blocks as [State.Check] does), later ones
// on a goroutine of the State whenever the status changes, one call at a time.
// An unknown name is [ServiceUnknown] until it appears. While someone watches,
// checks run every [Interval].
//
// A slow fn delays nobody else: changes meanwhile are merged into the newest. A
// panic in fn is swallowed and the watch goes on. After cancel has returned no
// call of fn begins; one in progress is not waited for, so cancel may be called
// by fn. Canceling twice is safe. A nil fn watches nothing.
func (s *State) Watch(service string, fn func(Status)) (cancel func()) {
	if fn == nil {
		return func() {}
	}
	s.refresh(func(c *check) bool { return c.concerns(service) })

	w := &watcher{service: service, fn: fn, telling: true}
	s.mu.Lock()
	w.latest = s.statusLocked(service)
	w.told = w.latest
	first := w.told
	if !s.closed {
		s.watchers[w] = struct{}{}
	}
	for _, c := range s.checks {
		s.armLocked(c)
	}
	s.beginLocked()
	s.mu.Unlock()

	w.tell(first)
	s.mu.Lock()
	w.telling = false
	s.endLocked()
	s.notifyLocked(w)
	s.mu.Unlock()
	return sync.OnceFunc(func() { s.unwatch(w) })
}

func (s *State) unwatch(w *watcher) {
	s.mu.Lock()
	defer s.mu.Unlock()
	w.gone = true
	delete(s.watchers, w)
	if s.watchedLocked() {
		return
	}
	for _, c := range s.checks {
		c.disarm()
	}
}

// publishLocked follows every change of the table: all watchers of all names
// are compared with the rule, so no transition can miss a name.
func (s *State) publishLocked() {
	for w := range s.watchers {
		w.latest = s.statusLocked(w.service)
		s.notifyLocked(w)
	}
}

// notifyLocked starts telling a watcher what it has not been told.
func (s *State) notifyLocked(w *watcher) {
	if w.gone || w.telling || w.latest == w.told || s.closed {
		return
	}
	w.telling = true
	s.beginLocked()
	go s.tellAll(w)
}

func (s *State) tellAll(w *watcher) {
	defer func() { // deferred: fn may end this goroutine with runtime.Goexit
		s.mu.Lock()
		defer s.mu.Unlock()
		w.telling = false
		s.endLocked()
		s.notifyLocked(w)
	}()
	for {
		st, ok := s.next(w)
		if !ok {
			return
		}
		w.tell(st)
	}
}

// next takes what a watcher has not been told yet.
func (s *State) next(w *watcher) (Status, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if w.gone || s.closed || w.latest == w.told {
		return w.told, false
	}
	w.told = w.latest
	return w.told, true
}

func (w *watcher) tell(st Status) {
	defer func() { _ = recover() }() // a subscriber's panic is not ours to die of
	w.fn(st)
}
