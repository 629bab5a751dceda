package registry

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry/internal/serial"
)

// Bounds on a registrar.
const (
	// withdrawBound is Deregister's bound when its ctx has no deadline, and
	// that of undoing a late write.
	withdrawBound = 3 * time.Second
	// readBackBound is how long one reading back may take.
	readBackBound = time.Second
	// firstRetry and lastRetry pace the attempts to deregister.
	firstRetry = 50 * time.Millisecond
	lastRetry  = 500 * time.Millisecond
)

var (
	// ErrUnconfirmed is matched by errors that leave open whether the record
	// is there: the write may or may not have been applied.
	ErrUnconfirmed = errors.New("registry: the write is unconfirmed")
	// ErrTerminal is matched when a generation is used that is over.
	ErrTerminal = errors.New("registry: the registration is over")
)

// Registration is one generation of one instance: it writes the record once,
// takes it away once, and never comes back. A next generation (Next) replaces
// it; one that fails leaves it alone. It works with any Kratos Registrar, and
// asks its Discovery, if it is one, what became of a write without a clear
// answer. The heartbeat is the backend's. See State for the diagram. Safe for
// concurrent use.
type Registration struct {
	registrar kregistry.Registrar
	discovery kregistry.Discovery // nil: nothing can be read back
	instance  *kregistry.ServiceInstance
	previous  *Registration
	options   []RegistrationOption
	events    Events
	fault     error // of construction, told by Register

	turn chan struct{} // held by the Deregister under way

	mu       sync.Mutex
	state    State
	cancel   context.CancelFunc // of the write in flight
	answered chan struct{}      // closed when the write has answered and its consequences are drawn; nil before Register
}

// NewRegistration prepares a generation; nothing is written before Register.
// The instance is copied. A nil registrar or instance is told by Register.
func NewRegistration(r kregistry.Registrar, in *kregistry.ServiceInstance, opts ...RegistrationOption) *Registration {
	g := &Registration{registrar: r, instance: Clone(in), options: opts, turn: make(chan struct{}, 1)}
	if d, ok := r.(kregistry.Discovery); ok {
		g.discovery = d
	}
	for _, opt := range opts {
		if opt != nil {
			opt.applyRegistration(g)
		}
	}
	if r == nil {
		g.fault = errors.New("registry: the registrar is nil")
	}
	if in == nil {
		g.fault = errors.Join(g.fault, errors.New("registry: the instance is nil"))
	}
	return g
}

// Next prepares the generation that replaces this one with newer data of the
// same name and id. Until its Register succeeds this generation stays in
// force; when it succeeds this one is Replaced and the next one is the one to
// Deregister.
func (r *Registration) Next(in *kregistry.ServiceInstance) *Registration {
	next := NewRegistration(r.registrar, in, r.options...)
	next.previous = r
	if in != nil && r.instance != nil && (in.Name != r.instance.Name || in.ID != r.instance.ID) {
		next.fault = errors.Join(next.fault, fmt.Errorf("registry: the next generation of %q id %q must keep both, it has %q id %q; use NewRegistration for another instance",
			r.instance.Name, r.instance.ID, in.Name, in.ID))
	}
	return next
}

// State returns where the generation stands now.
func (r *Registration) State() State {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.state
}

// Register writes the record and returns nil only when it is known to be
// there. An error or panic of the registrar is resolved by reading back: a
// record that is there is written once more, so that the backend takes up its
// heartbeat, and counts; one that is not there makes the generation Failed.
// When ctx ends first the generation is given up: Register returns at once
// with ctx's error, and a write that lands late is taken away again in the
// background (or the previous generation's data put back). An error that
// matches ErrUnconfirmed leaves the outcome open: call Deregister.
//
// A generation is registered once; a second call returns ErrTerminal, or an
// error that names the state.
func (r *Registration) Register(ctx context.Context) error {
	if r.fault != nil {
		return r.fault
	}
	write, outcome, err := r.begin(ctx)
	if err != nil {
		return err
	}
	go r.write(write, outcome)
	select {
	case err = <-outcome:
	case <-r.answered: // a Deregister took over
		err = r.outcomeOr(outcome, fmt.Errorf("%w: it was deregistered meanwhile", ErrTerminal))
	case <-ctx.Done():
		r.giveUp()
		err = r.outcomeOr(outcome, errors.Join(ErrUnconfirmed, context.Cause(ctx)))
	}
	if err != nil {
		return fmt.Errorf("register %q id %q: %w", r.instance.Name, r.instance.ID, err)
	}
	if r.previous != nil {
		r.previous.advance(replaced)
	}
	return nil
}

// begin moves to Registering and returns the ctx of the write and the place
// for its outcome.
func (r *Registration) begin(ctx context.Context) (context.Context, chan error, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	next, ok := r.state.after(start)
	if !ok {
		return nil, nil, r.wrongState()
	}
	if ctx.Err() != nil {
		return nil, nil, ctx.Err() // nothing was written, the generation stays Idle
	}
	write, cancel := context.WithCancel(ctx)
	r.state, r.cancel, r.answered = next, cancel, make(chan struct{})
	return write, make(chan error, 1), nil
}

func (r *Registration) wrongState() error {
	if r.state.Terminal() {
		return fmt.Errorf("register %q id %q: %w (%s); make a new one", r.instance.Name, r.instance.ID, ErrTerminal, r.state)
	}
	return fmt.Errorf("register %q id %q: it is %s already", r.instance.Name, r.instance.ID, r.state)
}

// giveUp ends the wait for the write: whatever comes now comes late.
func (r *Registration) giveUp() {
	r.advance(unanswered)
	r.cancel()
}

// outcomeOr returns an outcome that came at the last moment, or else.
func (r *Registration) outcomeOr(outcome <-chan error, otherwise error) error {
	select {
	case err := <-outcome:
		return err
	default:
		return otherwise
	}
}

// write performs the write and hands its outcome over, or, when nobody waits
// for it any more, undoes what has landed. It is the owner of answered.
func (r *Registration) write(ctx context.Context, outcome chan<- error) {
	defer close(r.answered)
	defer r.cancel()
	what, err := r.perform(ctx)
	if r.deliver(what, err, outcome) && (what != unanswered || ctx.Err() == nil) {
		return
	}
	r.settleLate(what, err)
}

// deliver takes the step and tells the outcome, if the write is still wanted.
func (r *Registration) deliver(what step, err error, outcome chan<- error) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.state != Registering {
		return false
	}
	r.state, _ = r.state.after(what)
	outcome <- err
	return true
}

// perform writes, and finds out what became of a write that failed. A record
// that is there is written once more: many backends start their heartbeat
// only after a good answer, and writes are idempotent by id.
func (r *Registration) perform(ctx context.Context) (step, error) {
	cause := r.writeOnce(ctx)
	if cause == nil {
		return landed, nil
	}
	if ctx.Err() != nil {
		return unanswered, errors.Join(ErrUnconfirmed, context.Cause(ctx), cause)
	}
	what, err := r.inquire(ctx, cause)
	if what != landed {
		return what, err
	}
	if r.writeOnce(ctx) != nil {
		if what, err = r.inquire(ctx, cause); what != landed {
			return what, err
		}
	}
	r.events.Send(r.event(WriteResolved, cause))
	return landed, nil
}

// writeOnce calls the registrar; its panic is its error.
func (r *Registration) writeOnce(ctx context.Context) error {
	var err error
	if fault := serial.Guard(func() { err = r.registrar.Register(r.heard(ctx), r.instance) }); fault != nil {
		return fault
	}
	return err
}

// heard is ctx with our receivers beside those of whoever calls us: a wrapped
// registrar may have a Registration of its own.
func (r *Registration) heard(ctx context.Context) context.Context {
	outer := ListenerFromContext(ctx)
	return NewListenerContext(ctx, func(e Event) {
		r.events.Send(e)
		if outer != nil {
			outer(e)
		}
	})
}

// inquire reads back what became of a write that failed for cause.
func (r *Registration) inquire(ctx context.Context, cause error) (step, error) {
	found, err := r.readBack(ctx)
	switch {
	case err != nil:
		return unanswered, errors.Join(ErrUnconfirmed, cause, err)
	case found != present:
		return refuted, cause
	}
	return landed, nil
}

func (r *Registration) event(kind EventKind, err error) Event {
	return Event{Kind: kind, Service: r.instance.Name, Instance: r.instance.ID, Err: err}
}

func (r *Registration) advance(what step) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next, ok := r.state.after(what); ok {
		r.state = next
	}
}
