package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// Windowed gives a registrar a propagation window: its Deregister takes the
// record away and then waits, as long as ctx allows, so that callers learn of
// it while they are still served. It is for apps that stop their servers as
// soon as Deregister returns, such as kratos.New; package app has a window of
// its own. Instances are registered through a [Registration], one per name and
// id. A window that is not positive does not wait; nor does a deregistration
// that failed, or one of an instance that was never registered.
func Windowed(r kregistry.Registrar, window time.Duration, opts ...RegistrationOption) kregistry.Registrar {
	return &windowed{registrar: r, window: window, options: opts, lines: make(map[string]*line)}
}

type windowed struct {
	registrar kregistry.Registrar
	window    time.Duration
	options   []RegistrationOption

	mu    sync.Mutex
	lines map[string]*line // by name and id; only those in use or with a record
}

// line is the line of generations of one name and id.
type line struct {
	turn chan struct{} // held by the Register or Deregister under way

	// Under windowed.mu.
	users    int           // calls under way
	underWay *Registration // the one whose Register has not answered, or nil

	// Under turn: the generations that have or may have a record, oldest first.
	live []*Registration
}

// Register implements kratos registry.Registrar. Calls for one name and id take
// turns, so that each generation replaces the one before it.
func (w *windowed) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	if in == nil {
		return NewRegistration(w.registrar, in, w.options...).Register(ctx) // which tells
	}
	l, leave := w.enter(in)
	defer leave()
	if err := l.acquire(ctx); err != nil {
		return fmt.Errorf("register %q id %q: another call for it is under way: %w", in.Name, in.ID, err)
	}
	defer l.release()
	var generation *Registration
	if n := len(l.live); n == 0 {
		generation = NewRegistration(w.registrar, in, w.options...)
	} else {
		generation = l.live[n-1].Next(in)
	}
	w.setUnderWay(l, generation)
	err := generation.Register(ctx)
	w.setUnderWay(l, nil)
	l.live = append(l.live, generation)
	l.prune() // what may have landed stays: Deregister finds out
	return err
}

// Deregister implements kratos registry.Registrar. It ends a Register in
// flight.
func (w *windowed) Deregister(ctx context.Context, in *kregistry.ServiceInstance) error {
	if in == nil {
		return errors.New("registry: the instance is nil")
	}
	l, leave := w.enter(in)
	defer leave()
	had, err := w.withdraw(ctx, l, in)
	if err != nil {
		return err
	}
	if !had || w.window <= 0 {
		return nil
	}
	timer := time.NewTimer(w.window)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done(): // gone it is all the same
	}
	return nil
}

// withdraw deregisters all generations of a line, the newest first: undoing
// one whose outcome is open puts back what it would have replaced.
func (w *windowed) withdraw(ctx context.Context, l *line, in *kregistry.ServiceInstance) (had bool, err error) {
	if _, bounded := ctx.Deadline(); !bounded {
		limited, cancel := context.WithTimeout(ctx, withdrawBound)
		defer cancel()
		ctx = limited
	}
	w.mu.Lock()
	underWay := l.underWay
	w.mu.Unlock()
	if underWay != nil {
		if err := underWay.Deregister(ctx); err != nil {
			return false, err
		}
	}
	if err := l.acquire(ctx); err != nil {
		return false, fmt.Errorf("deregister %q id %q: another call for it is under way: %w", in.Name, in.ID, errors.Join(ErrUnconfirmed, err))
	}
	defer l.release()
	defer l.prune()
	for _, generation := range slices.Backward(l.live) {
		had = true
		if err := generation.Deregister(ctx); err != nil {
			return had, err
		}
	}
	return had, nil
}

// enter returns the line of an instance, which stays known until leave.
func (w *windowed) enter(in *kregistry.ServiceInstance) (l *line, leave func()) {
	key := in.Name + "\x00" + in.ID
	w.mu.Lock()
	defer w.mu.Unlock()
	l = w.lines[key]
	if l == nil {
		l = &line{turn: make(chan struct{}, 1)}
		w.lines[key] = l
	}
	l.users++
	return l, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		if l.users--; l.users == 0 && len(l.live) == 0 {
			delete(w.lines, key)
		}
	}
}

func (w *windowed) setUnderWay(l *line, generation *Registration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	l.underWay = generation
}

func (l *line) acquire(ctx context.Context) error {
	select {
	case l.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

func (l *line) release() { <-l.turn }

// prune drops the generations that have no record. The turn is held.
func (l *line) prune() {
	l.live = slices.DeleteFunc(l.live, func(r *Registration) bool {
		state := r.State()
		return state.Terminal() || state == Idle
	})
}
