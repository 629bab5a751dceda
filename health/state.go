package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"
)

// closeGrace is how long Close waits for checks and watchers after their ctx
// was cancelled; code that does not return by then is left behind.
const closeGrace = time.Second

// ErrLeftBehind is in the error of [State.Close] when a check or a watcher did
// not return in time. Its goroutine ends when that code returns.
var ErrLeftBehind = errors.New("health: left behind")

// State is the health of one process. All methods are safe for concurrent use.
// A State that no lifecycle touches stays in phase [Starting]. The zero value
// is not usable; see [New].
//
// It owns no standing goroutine: one runs per check in flight and per watcher
// being told, and all of them end by themselves or with [State.Close].
type State struct {
	ctx    context.Context // of check runs; ends with Close
	cancel context.CancelFunc

	mu       sync.Mutex
	phase    Phase
	set      map[string]Status
	known    map[string]struct{}
	checks   map[string]*check
	watchers map[*watcher]struct{}
	closed   bool
	workers  int           // goroutines running code we do not own
	idle     chan struct{} // non-nil once Close waits; closed when workers is 0
}

// New returns a State in phase [Starting] that knows the name "".
func New() *State {
	ctx, cancel := context.WithCancel(context.Background())
	return &State{
		ctx:      ctx,
		cancel:   cancel,
		set:      make(map[string]Status),
		known:    map[string]struct{}{"": {}},
		checks:   make(map[string]*check),
		watchers: make(map[*watcher]struct{}),
	}
}

// Set records what the application says about a service; "" is the whole
// server. The record survives every lifecycle step: outside phase [Ready] it is
// remembered but NOT_SERVING is published. It makes an unknown name known.
// [ServiceUnknown] and undefined values are taken as [NotServing].
func (s *State) Set(service string, st Status) {
	if st != Serving && st != Unknown {
		st = NotServing
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.known[service] = struct{}{}
	s.set[service] = st
	s.publishLocked()
}

// Register makes service names known; registering a name again changes nothing.
func (s *State) Register(services ...string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, name := range services {
		s.known[name] = struct{}{}
	}
	s.publishLocked()
}

// SetPhase tells where the lifecycle stands and publishes every name. It never
// waits for checks or watchers. Within a life the phase goes forward only: a
// late Ready after Draining changes nothing; [Starting] begins a new life.
// Values that are not a defined phase change nothing.
func (s *State) SetPhase(p Phase) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p < Starting || p > Stopped || p != Starting && p <= s.phase {
		return
	}
	s.phase = p
	s.phaseChecksLocked()
	s.publishLocked()
}

// Phase returns where the lifecycle stands.
func (s *State) Phase() Phase {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.phase
}

// Check returns what is published for a service, and false with
// [ServiceUnknown] for an unknown name. In phase [Ready] it first runs the
// checks of that name whose result is too old, all at once, and so may take as
// long as the longest timeout among them, never longer.
func (s *State) Check(service string) (Status, bool) {
	s.refresh(func(c *check) bool { return c.concerns(service) })
	s.mu.Lock()
	defer s.mu.Unlock()
	st := s.statusLocked(service)
	return st, st != ServiceUnknown
}

// List returns what is published for every known name, "" included. It blocks
// as [State.Check] does. The map is the caller's.
func (s *State) List() map[string]Status {
	s.refresh(func(*check) bool { return true })
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.listLocked()
}

// Close cancels running checks, stops watching and waits up to 1 s for the code
// of checks and watchers to return; after that it returns [ErrLeftBehind] with
// the names of the checks. The State still answers afterwards, checks keep
// their last result. Closing twice is safe. It must not be called by a watcher.
func (s *State) Close() error {
	s.mu.Lock()
	s.closed = true
	for _, c := range s.checks {
		c.disarm()
	}
	clear(s.watchers)
	if s.idle == nil {
		s.idle = make(chan struct{})
		if s.workers == 0 {
			close(s.idle)
		}
	}
	idle := s.idle
	s.mu.Unlock()
	s.cancel()

	grace := time.NewTimer(closeGrace)
	defer grace.Stop()
	select {
	case <-idle:
		return nil
	case <-grace.C:
		return fmt.Errorf("%w %v after Close: running checks [%s]", ErrLeftBehind, closeGrace, strings.Join(s.busyChecks(), " "))
	}
}

func (s *State) busyChecks() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	var names []string
	for name, c := range s.checks {
		if c.busy {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// statusLocked is the one rule of the package; everything published comes from here.
func (s *State) statusLocked(service string) Status {
	if _, ok := s.known[service]; !ok {
		return ServiceUnknown
	}
	if s.phase != Ready {
		return NotServing
	}
	if st, ok := s.set[service]; ok && st != Serving {
		return st
	}
	for _, c := range s.checks {
		if c.err != nil && c.concerns(service) {
			return NotServing
		}
	}
	return Serving
}

func (s *State) listLocked() map[string]Status {
	list := make(map[string]Status, len(s.known))
	for name := range s.known {
		list[name] = s.statusLocked(name)
	}
	return list
}

// beginLocked and endLocked count goroutines so that Close can wait for them.
func (s *State) beginLocked() { s.workers++ }

func (s *State) endLocked() {
	s.workers--
	if s.workers == 0 && s.idle != nil {
		select {
		case <-s.idle: // an earlier Close saw zero already
		default:
			close(s.idle)
		}
	}
}
