package selector

import (
	"context"
	"errors"
	"net/http"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// Outcome is what the end of a call says about the node.
type Outcome uint8

const (
	// Success means that the node answered as it should; its latency counts.
	Success Outcome = iota
	// Failure means that the node is at fault or overloaded. Its weight falls; its
	// latency counts only when it is above the average.
	Failure
	// Neutral says nothing about the node. Nothing is recorded.
	Neutral
)

// String names the outcome.
func (o Outcome) String() string {
	switch o {
	case Success:
		return "success"
	case Failure:
		return "failure"
	case Neutral:
		return "neutral"
	default:
		return "unknown"
	}
}

// OutcomeOf judges the error of a finished call when nothing but the error is
// known, as in Kratos's DoneInfo. Errors may be wrapped, gRPC statuses, Kratos
// errors or bare context errors.
//
//   - nil is Success, and so is a business error in Kitex's sense, such as
//     materpc's BizError: the node did its work.
//   - A cancel (context.Canceled, codes.Canceled, Kratos's 499) is Neutral: it
//     is the caller's.
//   - DeadlineExceeded in any form, Unavailable, ResourceExhausted (overload),
//     Internal, Unknown and DataLoss are Failure, as is every other error that
//     is no status: the connection's. Kratos fails on 503 and 504 only and so
//     sends traffic to an instance that answers Internal at once. An error that
//     all instances give lowers them all alike and changes no share.
//   - All other codes speak of the request (NotFound, InvalidArgument,
//     PermissionDenied, ...). They are Neutral rather than Success because
//     refusing a request is faster than serving it: an instance that only
//     refuses must not look fast.
func OutcomeOf(err error) Outcome {
	if err == nil || isBusiness(err) {
		return Success
	}
	if errors.Is(err, context.Canceled) {
		return Neutral
	}
	// Before the status: building one from a Kratos error is expensive, and it
	// maps unusual HTTP codes to Unknown.
	if ke := (*kerrors.Error)(nil); errors.As(err, &ke) {
		return outcomeOfHTTP(int(ke.Code))
	}
	st, ok := status.FromError(err)
	if !ok {
		return Failure
	}
	switch st.Code() {
	case codes.DeadlineExceeded, codes.Unavailable, codes.ResourceExhausted, codes.Internal, codes.Unknown, codes.DataLoss:
		return Failure
	default:
		return Neutral
	}
}

// isBusiness knows Kitex's interface of business errors.
func isBusiness(err error) bool {
	var business interface{ BizStatusCode() int32 }
	return errors.As(err, &business)
}

func outcomeOfHTTP(code int) Outcome {
	switch {
	case code == http.StatusNotImplemented:
		return Neutral
	case code >= http.StatusInternalServerError, code == http.StatusTooManyRequests, code == http.StatusRequestTimeout:
		return Failure
	default:
		return Neutral
	}
}
