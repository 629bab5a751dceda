package materpc

import (
	"errors"
	"fmt"
	"maps"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// BizError is a business failure: the call worked, the business said no. On
// the wire it is a non-zero gRPC status plus the trailers biz-status and
// biz-extra of Kitex's gRPC transport, so that Kitex peers read it as their
// own. It feeds no breaker and is charged to no instance.
type BizError struct {
	code   int32
	status *status.Status
	extra  map[string]string
}

// NewBizError makes a business error with its business code and message. The
// gRPC code is Internal, as Kitex sends it; see [BizError.WithStatus].
//
// code is any int32 but 0, which readers take for success. A 0 travels as it
// is, and [BizError.Error] says that it is none. An empty message becomes
// "business error CODE", so that a peer that reads only the status is told
// something.
func NewBizError(code int32, message string) *BizError {
	if message == "" {
		message = fmt.Sprintf("business error %d", code)
	}
	return &BizError{code: code, status: status.New(codes.Internal, message)}
}

// WithStatus returns a copy that travels as s. An OK status would hide the
// error from every peer and is replaced by Internal.
func (e *BizError) WithStatus(s *status.Status) *BizError {
	if s.Code() == codes.OK {
		s = status.New(codes.Internal, s.Message())
	}
	return &BizError{code: e.code, status: s, extra: e.extra}
}

// WithExtra returns a copy that carries extra, which is copied.
func (e *BizError) WithExtra(extra map[string]string) *BizError {
	return &BizError{code: e.code, status: e.status, extra: maps.Clone(extra)}
}

// BizStatusCode returns the business code.
func (e *BizError) BizStatusCode() int32 { return e.code }

// BizMessage returns the message.
func (e *BizError) BizMessage() string { return e.status.Message() }

// BizExtra returns a copy of the extra values, nil without any.
func (e *BizError) BizExtra() map[string]string { return maps.Clone(e.extra) }

// GRPCStatus makes the error compatible with the status package.
func (e *BizError) GRPCStatus() *status.Status { return e.status }

// Error returns Kitex's text for business errors, once: what a server sent as a
// wrapped one, fmt.Errorf("stock: %w", e), arrives with that text in its message.
func (e *BizError) Error() string {
	message := e.status.Message()
	head := fmt.Sprintf("biz error: code=%d", e.code)
	switch {
	case strings.Contains(message, head+",") || strings.Contains(message, head+" ("):
		return message
	case e.code == 0:
		head += " (0 is no business code, readers take it for success)"
	}
	return head + ", msg=" + message
}

// BizErrorOf finds the business error in err's tree.
func BizErrorOf(err error) (*BizError, bool) {
	var e *BizError
	ok := errors.As(err, &e)
	return e, ok
}
