package main

import (
	"context"
	"errors"
	"time"
)

// pause waits for d, or less if ctx ends.
func pause(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return nil
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// isEndOf reports whether err is the end of ctx and not a fault.
func isEndOf(ctx context.Context, err error) bool {
	return ctx.Err() != nil && (errors.Is(err, ctx.Err()) || errors.Is(err, context.Cause(ctx)))
}

// until waits for a moment or the end of ctx.
func until(ctx context.Context, moment time.Time) error {
	return pause(ctx, max(0, time.Until(moment)))
}
