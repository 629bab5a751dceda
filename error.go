package materpc

import (
	"context"
	"fmt"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Error is the error of a governed call: a gRPC status with the [ErrorKind]
// that this hop decided and the cause, if one is known. It works with
// status.FromError, Kratos's errors.FromError (by the ErrorInfo detail that
// errors made here carry) and errors.Is with a kind or with the cause. It is
// immutable and safe for concurrent use.
type Error struct {
	kind   ErrorKind
	status *status.Status
	cause  error
	peer   *Peer
}

// Errorf makes an error of this hop: the kind's code, the kind's Kratos reason
// as ErrorInfo, a message, and the cause that a %w verb names.
func Errorf(kind ErrorKind, format string, args ...any) *Error {
	text := fmt.Errorf(format, args...)
	s := status.New(failed(kind.Code()), text.Error())
	if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: kind.Reason()}); err == nil {
		s = detailed
	}
	return &Error{kind: kind, status: s, cause: text}
}

// Classified keeps err's status, details included, and adds what this hop
// knows about it. peer is the instance that the call had spoken to, or nil.
func Classified(kind ErrorKind, err error, peer *Peer) *Error {
	s := status.Convert(err)
	if s.Code() == codes.OK { // nil, or an error that says OK of itself
		s = status.Newf(codes.Unknown, "materpc: an error with status OK: %v", err)
	}
	return &Error{kind: kind, status: s, cause: err, peer: peer}
}

// failed is the code itself, unless it says that nothing failed.
func failed(code codes.Code) codes.Code {
	if code == codes.OK {
		return codes.Unknown
	}
	return code
}

// Kind returns what happened.
func (e *Error) Kind() ErrorKind { return e.kind }

// Peer returns the instance that the call had last spoken to; its fields are
// empty when the call reached none.
func (e *Error) Peer() Peer {
	if e.peer == nil {
		return Peer{}
	}
	return *e.peer
}

// GRPCStatus makes the error compatible with the status package.
func (e *Error) GRPCStatus() *status.Status { return e.status }

// Error returns the text that grpc-go gives the status.
func (e *Error) Error() string { return e.status.Err().Error() }

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.cause }

// Is reports whether target is the error's kind, or the context error that a
// timeout or a cancel stands for.
func (e *Error) Is(target error) bool {
	if kind, ok := target.(ErrorKind); ok {
		return kind == e.kind
	}
	switch e.kind {
	case RPCTimeout, TimeoutByBusiness:
		return target == context.DeadlineExceeded
	case CanceledByBusiness:
		return target == context.Canceled
	}
	return false
}
