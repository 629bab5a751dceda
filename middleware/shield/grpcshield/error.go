package grpcshield

import (
	"context"
	"errors"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
)

// statusError gives an error a code: to callers it is a status, to errors.Is and
// errors.As what it was.
type statusError struct {
	code codes.Code
	errs []error // the first is the error itself
}

func (e *statusError) Error() string { return e.GRPCStatus().String() }

// GRPCStatus is what the status package asks for.
func (e *statusError) GRPCStatus() *status.Status { return status.New(e.code, e.errs[0].Error()) }

// Unwrap returns what errors.Is and errors.As see.
func (e *statusError) Unwrap() []error { return e.errs }

func coded(code codes.Code, errs ...error) error { return &statusError{code: code, errs: errs} }

// surface makes the shield's end of a call the caller's. The error of an attempt
// is left as it is, unless it tells of the caller's own cancel: that is then
// found in it, with its cause.
func surface(ctx context.Context, err error) error {
	if err == nil {
		return nil
	}
	var refused *shield.Rejected
	var timedOut *shield.TimedOut
	_, answered := err.(interface{ GRPCStatus() *status.Status })
	switch {
	case answered && !errors.Is(ctx.Err(), context.Canceled):
		return err
	case !answered && errors.As(err, &refused):
		return coded(refusal(refused.Reason), err)
	case !answered && errors.As(err, &timedOut):
		return coded(codes.DeadlineExceeded, err)
	}
	code, _ := codeOf(err)
	if code == codes.Canceled && errors.Is(ctx.Err(), context.Canceled) {
		return coded(code, err, ctx.Err(), context.Cause(ctx))
	}
	if !answered && (errors.Is(err, context.DeadlineExceeded) || errors.Is(err, context.Canceled)) {
		return coded(code, err)
	}
	return err
}

// swallowed is the error of a call that a layer has let fail without one.
func swallowed(s *shield.Shield) error {
	return status.Errorf(codes.Internal, "grpcshield: a layer of the shield %q told no error of a call that has failed (%s): have it return one", s.Name(), s)
}

// refusal is the code of a layer's refusal.
func refusal(reason shield.Reason) codes.Code {
	switch reason {
	case shield.BreakerOpen, shield.Isolated, shield.Throttled:
		return codes.Unavailable
	default:
		return codes.ResourceExhausted
	}
}

// settled is the error of an attempt under ctx. When time is over, transports
// race: what they make of it is DeadlineExceeded.
func settled(ctx context.Context, err error) error {
	if err == nil || errors.Is(ctx.Err(), context.Canceled) {
		return err
	}
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) {
		return err
	}
	switch code, ok := codeOf(err); {
	case !ok:
	case code == codes.Canceled, code == codes.Unknown, code == codes.Unavailable:
		return coded(codes.DeadlineExceeded, err)
	}
	return err
}
