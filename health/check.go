package health

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"
)

const (
	defaultInterval = time.Second
	defaultTimeout  = time.Second
)

var (
	// ErrCheckPending is the result of a check that has not answered yet.
	ErrCheckPending = errors.New("health: check has not answered yet")
	// ErrCheckTimeout is the result of a check that did not answer in time.
	ErrCheckTimeout = errors.New("health: check timed out")
	// ErrCheckPanic is in the result of a check that panicked.
	ErrCheckPanic = errors.New("health: check panicked")

	errCheckGone = errors.New("health: check ended its goroutine without an answer")
)

// CheckOption changes a check of [State.AddCheck].
type CheckOption func(*check)

// Interval is how long a result is used before the check runs again, and how
// often it runs while someone watches. Default 1 s; must be positive.
func Interval(d time.Duration) CheckOption { return func(c *check) { c.interval = d } }

// Timeout is how long one run may take before it counts as failing. Default
// 1 s; must be positive.
func Timeout(d time.Duration) CheckOption { return func(c *check) { c.timeout = d } }

// Services limits a check to the names given; repeated options add up. Without
// it a check concerns every name, "" included.
func Services(names ...string) CheckOption {
	return func(c *check) { c.services = append(c.services, names...) }
}

// check is one check of the application. Between runs it is data; its fields
// below err are guarded by State.mu.
//
//	idle -> running (busy, run) -> settled by fn's answer -> idle
//	                            -> settled by timeout (busy) -> idle when fn returns
//
// While busy no second run starts, so a hanging fn holds one goroutine at most.
type check struct {
	name     string
	fn       func(context.Context) error
	interval time.Duration
	timeout  time.Duration
	services []string // nil: every name

	err   error // nil: passing
	at    time.Time
	busy  bool // fn has not returned
	run   *run // nil once settled
	timer *time.Timer
}

// run is one execution of a check; done is closed when its result is in.
type run struct{ done chan struct{} }

// AddCheck adds a check. fn runs only in phase [Ready], on demand or every
// [Interval] while someone watches, on a goroutine of the State, one run at a
// time. Its ctx ends after [Timeout] or with [State.Close]. A check is failing
// until it has answered, when it returns an error, panics or is late; the late
// answer of a run changes nothing.
//
// An empty or taken name, a nil fn, an interval or a timeout that is not
// positive are errors, all reported at once; nothing is added then.
func (s *State) AddCheck(name string, fn func(context.Context) error, opts ...CheckOption) error {
	c := &check{name: name, fn: fn, interval: defaultInterval, timeout: defaultTimeout, err: ErrCheckPending}
	for _, opt := range opts {
		if opt != nil {
			opt(c)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	faults := c.validate()
	if _, taken := s.checks[name]; taken {
		faults = errors.Join(faults, fmt.Errorf("health: check %q: the name is taken, give each check its own name", name))
	}
	if faults != nil {
		return faults
	}
	s.checks[name] = c
	if s.watchedLocked() {
		s.startLocked(c)
	}
	s.publishLocked()
	return nil
}

// Checks returns the last result of every check by name; nil is passing. It
// runs nothing and does not block. The texts come from the application: do not
// show them to the public.
func (s *State) Checks() map[string]error {
	s.mu.Lock()
	defer s.mu.Unlock()
	results := make(map[string]error, len(s.checks))
	for name, c := range s.checks {
		results[name] = c.err
	}
	return results
}

func (c *check) validate() error {
	var faults []error
	if c.name == "" {
		faults = append(faults, errors.New(`health: check "": empty name, name what is checked, such as "db"`))
	}
	if c.fn == nil {
		faults = append(faults, fmt.Errorf("health: check %q: nil function, pass a func(context.Context) error", c.name))
	}
	if c.interval <= 0 {
		faults = append(faults, fmt.Errorf("health: check %q: interval %v, must be positive (default %v)", c.name, c.interval, defaultInterval))
	}
	if c.timeout <= 0 {
		faults = append(faults, fmt.Errorf("health: check %q: timeout %v, must be positive (default %v)", c.name, c.timeout, defaultTimeout))
	}
	return errors.Join(faults...)
}

func (c *check) concerns(service string) bool {
	return c.services == nil || slices.Contains(c.services, service)
}

func (c *check) disarm() {
	if c.timer != nil {
		c.timer.Stop()
		c.timer = nil
	}
}

// refresh runs the checks chosen by wanted whose result is too old, joins runs
// in flight, and waits until each is settled, which its timeout bounds.
func (s *State) refresh(wanted func(*check) bool) {
	s.mu.Lock()
	var runs []*run
	if s.phase == Ready {
		now := time.Now()
		for _, c := range s.checks {
			fresh := !c.at.IsZero() && now.Sub(c.at) < c.interval
			if !wanted(c) || fresh && c.run == nil {
				continue
			}
			if r := s.startLocked(c); r != nil {
				runs = append(runs, r)
			}
		}
	}
	s.mu.Unlock()
	for _, r := range runs {
		<-r.done
	}
}

// startLocked starts a run, or returns the one in flight; nil when the last run
// was settled by its timeout and fn still has not returned, or after Close.
func (s *State) startLocked(c *check) *run {
	if c.run != nil || c.busy || s.closed {
		return c.run
	}
	c.disarm()
	r := &run{done: make(chan struct{})}
	c.run, c.busy = r, true
	s.beginLocked()
	go s.execute(c, r)
	return r
}

func (s *State) execute(c *check, r *run) {
	ctx, cancel := context.WithTimeout(s.ctx, c.timeout)
	defer cancel()
	stop := context.AfterFunc(ctx, func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.settleLocked(c, r, fmt.Errorf("%w after %v", ErrCheckTimeout, c.timeout))
	})
	err := errCheckGone
	defer func() { // deferred: fn may end this goroutine with runtime.Goexit
		stop()
		s.mu.Lock()
		defer s.mu.Unlock()
		c.busy = false
		s.settleLocked(c, r, err)
		s.armLocked(c)
		s.endLocked()
	}()
	err = guarded(ctx, c.fn)
}

// settleLocked records the result of a run, once: whoever is first wins, so a
// late answer changes nothing. After Close the last result stays: a run that
// Close cancelled says nothing about what it checks.
func (s *State) settleLocked(c *check, r *run, err error) {
	if c.run != r {
		return
	}
	if s.closed {
		err = c.err
	}
	c.run, c.err, c.at = nil, err, time.Now()
	close(r.done)
	s.publishLocked()
}

// armLocked plans the next run of a check that someone watches. Without
// watchers nothing is planned: checks then run when asked.
func (s *State) armLocked(c *check) {
	if c.timer != nil || c.busy || !s.watchedLocked() {
		return
	}
	c.timer = time.AfterFunc(time.Until(c.at.Add(c.interval)), func() {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.watchedLocked() {
			s.startLocked(c)
		}
	})
}

func (s *State) watchedLocked() bool {
	return s.phase == Ready && len(s.watchers) > 0 && !s.closed
}

// phaseChecksLocked gives every check a fresh start when the phase becomes
// Ready and ends planned runs when it is left.
func (s *State) phaseChecksLocked() {
	for _, c := range s.checks {
		c.disarm()
		if s.phase != Ready {
			continue
		}
		c.err, c.at = ErrCheckPending, time.Time{}
		if s.watchedLocked() {
			s.startLocked(c)
		}
	}
}

func guarded(ctx context.Context, fn func(context.Context) error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("%w: %v", ErrCheckPanic, p)
		}
	}()
	return fn(ctx)
}
