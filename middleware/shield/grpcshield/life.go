package grpcshield

import (
	"context"
	"errors"
)

// outlive returns the ctx of an RPC that is opened under opening, a ctx of a
// shield, and lives on when that has ended: it has the values of opening, and
// deadline and cancel of life, the caller's.
func outlive(life, opening context.Context) (context.Context, context.CancelFunc) {
	if opening == life {
		return context.WithCancel(life)
	}
	ctx, cancel := context.WithCancel(context.WithoutCancel(opening))
	if deadline, ok := life.Deadline(); ok {
		cancel()
		ctx, cancel = context.WithDeadline(context.WithoutCancel(opening), deadline)
	}
	release := context.AfterFunc(life, func() {
		if errors.Is(life.Err(), context.Canceled) { // the RPC's own timer does the rest
			cancel()
		}
	})
	return ctx, func() {
		release()
		cancel()
	}
}

// bind has end called when ctx, a ctx of a shield, ends before release is called,
// which then returns false. The caller's own ctx, life, needs no such thing.
func bind(life, ctx context.Context, end func()) (release func() bool) {
	if ctx == life {
		return func() bool { return true }
	}
	return context.AfterFunc(ctx, end)
}
