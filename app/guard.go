package app

import (
	"context"
	"errors"
	"fmt"
	"time"
)

// patience is how long code may take to return once its ctx has ended; urgent,
// when closed, cuts that to stepGrace.
type patience struct {
	grace  time.Duration
	urgent <-chan struct{}
}

// call runs code we do not own on a goroutine of its own: a panic becomes an
// error, and when ctx has ended and patience is over it is left behind.
func call(ctx context.Context, what string, patient patience, fn func(context.Context) error) error {
	result := make(chan error, 1)
	go func() {
		err := fmt.Errorf("app: %s: ended its goroutine without returning", what)
		defer func() { result <- err }() // deferred: fn may call runtime.Goexit
		err = guarded(what, func() error { return fn(ctx) })
	}()
	select {
	case err := <-result:
		return err
	case <-ctx.Done():
	}
	timer := time.NewTimer(patient.grace)
	defer timer.Stop()
	for {
		select {
		case err := <-result:
			return err
		case <-timer.C:
			return fmt.Errorf("app: %s: %w: %w", what, ErrLeftBehind, context.Cause(ctx))
		case <-patient.urgent:
			patient.urgent = nil
			timer.Reset(min(patient.grace, stepGrace))
		}
	}
}

// guarded runs fn, names the failing part in its error and turns a panic into one.
func guarded(what string, fn func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("app: %s: %w: %v", what, ErrPanic, p)
		}
	}()
	if err := fn(); err != nil {
		return fmt.Errorf("app: %s: %w", what, err)
	}
	return nil
}

// join is errors.Join that leaves a single error as it is.
func join(errs ...error) error {
	var faults []error
	for _, err := range errs {
		if err != nil {
			faults = append(faults, err)
		}
	}
	if len(faults) == 1 {
		return faults[0]
	}
	return errors.Join(faults...)
}
