package grpcshield

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
)

// Transient handles the failures that another attempt may not meet: Unavailable,
// DeadlineExceeded (of an attempt's own timeout, too) and ResourceExhausted, and
// nothing else. Refusals of layers are not among them.
var Transient = named("transient", codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted) //nolint:gochecknoglobals // never written

// ServerFaults handles what tells of a server in trouble: Internal, Unknown,
// DataLoss, Unavailable and DeadlineExceeded. It is for breakers: an answer such
// as NotFound says that the server is well.
var ServerFaults = named("server faults", codes.Internal, codes.Unknown, codes.DataLoss, codes.Unavailable, codes.DeadlineExceeded) //nolint:gochecknoglobals // never written

// Codes handles errors with one of the codes. An error's code is that of its
// method GRPCStatus, its own or one found through %w and errors.Join, which
// Kratos's errors have too; DeadlineExceeded and Canceled for the errors of a
// ctx, Unknown for others. A refusal by a layer of a shield has none. Each call
// returns another clause, and [shield.Live.Swap] keeps the state of layers under
// the same clause: keep it in a variable.
func Codes(list ...codes.Code) *shield.Clause {
	list = slices.Clone(list)
	names := make([]string, len(list))
	for i, code := range list {
		names[i] = code.String()
	}
	return named(strings.Join(names, ", "), list...)
}

func named(name string, list ...codes.Code) *shield.Clause {
	return shield.Match(name, func(_ context.Context, err error) bool {
		code, ok := codeOf(err)
		return ok && slices.Contains(list, code)
	})
}

// codeOf returns the code of an error. False: a layer refused, nothing answered.
func codeOf(err error) (codes.Code, bool) {
	var refused *shield.Rejected
	if errors.As(err, &refused) {
		return codes.Unknown, false
	}
	var timedOut *shield.TimedOut
	if errors.As(err, &timedOut) {
		return codes.DeadlineExceeded, true
	}
	if s, ok := status.FromError(err); ok {
		return s.Code(), true
	}
	return status.FromContextError(err).Code(), true
}
