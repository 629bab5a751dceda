package app

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/materpc/materpc/health"
)

// stopSteps is the order of the stop, of Stop, Drain, signals, the parent's end,
// a failed server and a failed or interrupted start alike. Why this one:
//
//   - not ready first: probes and health watchers turn away earliest;
//   - before-stop hooks while everything still works, and before the instance
//     leaves, so that they can tell others;
//   - the window after the deregistration, not beside it: callers learn of it
//     only once it has happened, and until they have, calls are served;
//   - servers next: GOAWAY, then running calls up to the exit wait;
//   - after-stop hooks last: they close what handlers may have used.
//
// Every step runs, whatever failed before; a step that has nothing to undo does
// nothing.
func (r *run) stopSteps() []step {
	return []step{
		{"not ready", r.notReady},
		{"before-stop hooks", r.beforeStop},
		{"deregister", r.deregister},
		{"propagation window", r.propagate},
		{"stop servers", r.stopServers},
		{"after-stop hooks", r.afterStop},
		{"stopped", r.stopped},
	}
}

func (r *run) stop() []error {
	r.budget = newBudget(r.opts, time.Now())
	var errs []error
	for _, s := range r.stopSteps() {
		errs = append(errs, r.do(s))
	}
	return errs
}

func (r *run) notReady() error {
	r.setPhase(health.Draining)
	return nil
}

func (r *run) beforeStop() error {
	if !r.served {
		r.budget.skip(len(r.opts.beforeStop))
		return nil
	}
	return r.stopHooks("before-stop hook", r.opts.beforeStop)
}

func (r *run) afterStop() error {
	if !r.served && !r.hooksBegan {
		return nil
	}
	return r.stopHooks("after-stop hook", r.opts.afterStop)
}

func (r *run) stopHooks(kind string, hooks []hook) error {
	var errs []error
	for i, fn := range hooks {
		ctx, patient, cancel := r.timed()
		errs = append(errs, call(ctx, fmt.Sprintf("%s %d", kind, i+1), patient, fn))
		cancel()
	}
	return join(errs...)
}

// deregister withdraws the instance, also when Register failed or is still in
// flight: what it wrote is unknown.
func (r *run) deregister() error {
	if r.registration == nil {
		r.budget.skip(1)
		return nil
	}
	ctx, patient, cancel := r.timed()
	defer cancel()
	if patient.urgent != nil { // it may read back once more, which settles what its last write did
		patient.grace = leaveBehind
		if r.opts.stop > 0 {
			patient.grace = max(stepGrace, min(leaveBehind, r.opts.stop/10))
		}
	}
	err := call(ctx, "deregister", patient, r.registration.Deregister)
	r.withdrawn = err == nil && r.registered
	return err
}

// propagate keeps serving until callers have learned of the deregistration.
// After a failed start there is none: the failure should be seen at once.
func (r *run) propagate() error {
	if !r.withdrawn || r.root != nil && !r.ready {
		r.budget.skip(1)
		return nil
	}
	ctx, _, cancel := r.timed()
	defer cancel()
	<-ctx.Done()
	return nil
}

// stopServers stops all servers at once; their ctx ends with the exit wait or
// the second signal.
func (r *run) stopServers() error {
	r.endLive()
	ctx, _, cancel := r.timed()
	defer cancel()
	if !r.served {
		return r.release()
	}
	errs := make([]error, len(r.servers))
	var group sync.WaitGroup
	for i, s := range r.servers {
		group.Go(func() { errs[i] = s.stop(ctx, r.root, r.ready) })
	}
	group.Wait()
	return join(errs...)
}

func (r *run) stopped() error {
	r.setPhase(health.Stopped)
	return nil
}

// timed returns the ctx of the next part of the stop: live at first, ended by
// its share of time or by the second signal; and the patience with its code
// after that. A part that begins after the second signal gets a short time of
// its own.
func (r *run) timed() (ctx context.Context, patient patience, cancel func()) {
	r.mu.Lock()
	r.budget.hurried = r.forcedAt
	r.mu.Unlock()
	share := r.budget.take(time.Now())
	patient = patience{grace: stepGrace, urgent: r.forced.Done()}
	inner, end := context.WithCancelCause(r.base)
	detach := func() bool { return true }
	if r.budget.hurried.IsZero() {
		detach = context.AfterFunc(r.forced, func() { end(errSecondSignal) })
	} else {
		share, patient = share/2, patience{grace: min(share/2, stepGrace)}
	}
	ctx, stop := context.WithTimeout(inner, share)
	return ctx, patient, func() { detach(); stop(); end(nil) }
}
