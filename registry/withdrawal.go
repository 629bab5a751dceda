package registry

import (
	"context"
	"errors"
	"fmt"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry/internal/serial"
)

// Deregister takes the record away and returns nil only when it is confirmed
// gone: the registrar said so, or reading back shows it after an error, a
// timeout or a panic. It tries again until ctx ends, at most 3 s when ctx has
// no deadline, and returns by then also when the registrar ignores its ctx;
// the error then matches ErrUnconfirmed and the registrar's last error, and
// another Deregister may try on. A Register in flight is cancelled, waited
// for, and taken away if it lands later still. A generation that wrote
// nothing, failed, or was replaced has nothing to take away: nil.
func (r *Registration) Deregister(ctx context.Context) error {
	if r.fault != nil {
		return nil // Register told it; nothing was ever written
	}
	if _, bounded := ctx.Deadline(); !bounded {
		limited, cancel := context.WithTimeout(ctx, withdrawBound)
		defer cancel()
		ctx = limited
	}
	select {
	case r.turn <- struct{}{}:
		defer func() { <-r.turn }()
	case <-ctx.Done():
		return fmt.Errorf("deregister %q id %q: another Deregister is under way: %w", r.instance.Name, r.instance.ID, errors.Join(ErrUnconfirmed, ctx.Err()))
	}
	answered, done := r.beginWithdrawal()
	if done {
		return nil
	}
	if err := r.withdraw(ctx, answered); err != nil {
		r.advance(lost)
		return fmt.Errorf("deregister %q id %q: %w", r.instance.Name, r.instance.ID, err)
	}
	r.advance(gone)
	return nil
}

// beginWithdrawal moves to Withdrawing and cancels a write in flight.
func (r *Registration) beginWithdrawal() (answered <-chan struct{}, done bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if next, ok := r.state.after(withdraw); ok {
		r.state = next
	}
	if r.cancel != nil {
		r.cancel()
	}
	return r.answered, r.state.Terminal()
}

// withdraw takes the record away until it is confirmed. While a write is in
// flight no absence is final, since the write may land afterwards; but a
// write whose answer never comes must not keep the record in place, so after
// a fair wait (half of the time) the record is taken away anyway.
func (r *Registration) withdraw(ctx context.Context, answered <-chan struct{}) error {
	deadline, _ := ctx.Deadline()
	half, cancel := context.WithTimeout(ctx, time.Until(deadline)/2)
	defer cancel()
	select {
	case <-answered:
	case <-half.Done():
	}
	if r.State().Terminal() {
		return nil // the late write found itself unwanted and undid itself
	}
	final := isClosed(answered)
	if err := r.undo(ctx); err != nil || final {
		return err
	}
	select {
	case <-answered:
	case <-ctx.Done():
		return errors.Join(ErrUnconfirmed, errors.New("a Register is still in flight and may land late"), ctx.Err())
	}
	if r.State().Terminal() {
		return nil
	}
	return r.undo(ctx) // it may have landed in between
}

func isClosed(done <-chan struct{}) bool {
	select {
	case <-done:
		return true
	default:
		return false
	}
}

// undo takes our record away, or puts back that of the previous generation,
// which stays in force until this one is confirmed.
func (r *Registration) undo(ctx context.Context) error {
	if r.previous == nil || r.previous.State() != Registered {
		return r.remove(ctx)
	}
	if found, err := r.readBack(ctx); err == nil && found == other {
		return nil // it is still the previous one's
	}
	_, _, err := serial.Bounded(ctx, func() (struct{}, error) {
		return struct{}{}, r.registrar.Register(ctx, r.previous.instance)
	}, nil)
	return err
}

// remove deregisters, reads back after a failure, and repeats until the
// record is known to be gone or ctx ends.
func (r *Registration) remove(ctx context.Context) error {
	pause := firstRetry
	var last error
	for {
		err := r.removeOnce(ctx)
		if err == nil {
			return nil
		}
		if last == nil || ctx.Err() == nil {
			last = err // the registrar's word says more than our own timeout
		}
		found, unreadable := r.readBack(ctx)
		if unreadable == nil && found == absent {
			r.events.Send(r.event(WriteResolved, err))
			return nil
		}
		rest(ctx, pause)
		pause = min(2*pause, lastRetry)
		if ctx.Err() != nil {
			return errors.Join(ErrUnconfirmed, last, ctx.Err())
		}
	}
}

// removeOnce calls Deregister, bounded by ctx. A good answer that comes too
// late still counts, when nothing has happened since.
func (r *Registration) removeOnce(ctx context.Context) error {
	_, _, err := serial.Bounded(ctx, func() (struct{}, error) {
		return struct{}{}, r.registrar.Deregister(ctx, r.instance)
	}, func(_ struct{}, err error) {
		if err == nil {
			r.goneLate()
		}
	})
	return err
}

func (r *Registration) goneLate() {
	if isClosed(r.answered) { // else a write is in flight, and this says nothing
		r.advance(gone)
	}
}

// settleLate draws the consequences of a write whose generation was given up
// meanwhile: what landed is taken away again, or the previous generation put
// back.
func (r *Registration) settleLate(what step, cause error) {
	ctx, cancel := context.WithTimeout(context.Background(), withdrawBound)
	defer cancel()
	if what == unanswered {
		if found, err := r.readBack(ctx); err == nil && found != present {
			what = refuted
		}
	}
	if what == refuted {
		r.advance(refuted)
		return
	}
	if err := r.undo(ctx); err != nil {
		r.events.Send(r.event(LateWriteKept, errors.Join(err, cause)))
		return
	}
	r.advance(refuted)
	r.events.Send(r.event(LateWriteUndone, cause))
}

// presence is what reading back says about the record of this generation.
type presence int

const (
	absent presence = iota
	other           // a record with our id, but not our data
	present
)

var errCannotReadBack = errors.New("the registrar is no Discovery, so the write cannot be read back")

// readBack looks for our record, bounded also when ctx has ended: whoever
// asks needs an answer now.
func (r *Registration) readBack(ctx context.Context) (presence, error) {
	if r.discovery == nil {
		return absent, errCannotReadBack
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), readBackBound)
	defer cancel()
	list, _, err := serial.Bounded(ctx, func() ([]*kregistry.ServiceInstance, error) {
		return r.discovery.GetService(ctx, r.instance.Name)
	}, nil)
	if err != nil {
		return absent, fmt.Errorf("reading back: %w", err)
	}
	found := absent
	for _, in := range list {
		switch {
		case in == nil || in.ID != r.instance.ID:
		case covers(in, r.instance):
			return present, nil
		default:
			found = other
		}
	}
	return found, nil
}

// covers says whether a record carries all that we wrote; backends add
// metadata of their own.
func covers(record, in *kregistry.ServiceInstance) bool {
	if record.Version != in.Version {
		return false
	}
	for key, value := range in.Metadata {
		if got, ok := record.Metadata[key]; !ok || got != value {
			return false
		}
	}
	return sameEndpoints(record.Endpoints, in.Endpoints)
}
