package grpcshield_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

// What an error is for clauses, over all codes.
func TestCodesOfErrors(t *testing.T) {
	t.Parallel()
	refused := &shield.Rejected{Reason: shield.RateLimited}
	for _, c := range []struct {
		err  error
		want []codes.Code
	}{
		{nil, nil},
		{errDown, []codes.Code{codes.Unavailable}},
		{fmt.Errorf("attempt: %w", errDown), []codes.Code{codes.Unavailable}},
		{errors.Join(errCause, errDown), []codes.Code{codes.Unavailable}},
		{kratosError(503), []codes.Code{codes.Unavailable}},
		{errCause, []codes.Code{codes.Unknown}},
		{context.DeadlineExceeded, []codes.Code{codes.DeadlineExceeded}},
		{fmt.Errorf("attempt: %w", context.Canceled), []codes.Code{codes.Canceled}},
		{&shield.TimedOut{Cause: errFatal}, []codes.Code{codes.DeadlineExceeded}},
		{&shield.TimedOut{}, []codes.Code{codes.DeadlineExceeded}},
		{refused, nil},
		{fmt.Errorf("attempt: %w", errors.Join(refused, errDown)), nil},
	} {
		var got []codes.Code
		for code := codes.OK; code <= codes.Unauthenticated; code++ {
			runs := 0
			s := build(t, shield.On(grpcshield.Codes(code)), shield.Retry{Max: 1, Backoff: at(0)})
			_ = s.Do(t.Context(), func(context.Context) error { runs++; return c.err })
			if runs == 2 {
				got = append(got, code)
			}
		}
		if !slices.Equal(got, c.want) {
			t.Errorf("%v: %v, want %v", c.err, got, c.want)
		}
	}
	if got := grpcshield.Codes(codes.Unavailable, codes.Aborted).String(); got != "Unavailable, Aborted" {
		t.Error(got)
	}
}
