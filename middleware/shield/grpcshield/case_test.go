package grpcshield_test

import (
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

// kratosError is what Kratos's clients make of a status: an error with an HTTP
// code, and a method for the status package.
type kratosError int

func (e kratosError) Error() string { return fmt.Sprintf("error: code = %d", int(e)) }

func (e kratosError) GRPCStatus() *status.Status {
	table := map[kratosError]codes.Code{404: codes.NotFound, 500: codes.Internal, 503: codes.Unavailable, 504: codes.DeadlineExceeded}
	return status.New(table[e], e.Error())
}

// B06: what the server answers for reasons of business does not open a breaker.
func TestCaseB06BusinessCodesNeverOpenTheBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		business := []codes.Code{
			codes.NotFound, codes.InvalidArgument, codes.AlreadyExists, codes.PermissionDenied,
			codes.Unauthenticated, codes.FailedPrecondition, codes.OutOfRange,
		}
		for _, fault := range []error{
			status.Error(codes.Unavailable, ""), status.Error(codes.Internal, ""), status.Error(codes.DeadlineExceeded, ""),
			kratosError(500), kratosError(503), kratosError(504),
		} {
			s := build(t, shield.On(grpcshield.ServerFaults), shield.Breaker{})
			var answer error
			inner := &tap{after: func(int, error) error { return answer }}
			b := &backend{}
			cc := dial(t, b, grpcshield.Client{Unary: s}, inner.dialOption())
			ask := func(err error, times int) {
				answer = err
				for range times {
					if _, got := call(t.Context(), cc); got != err { //nolint:errorlint // the very error
						t.Errorf("%v, want %v", got, err)
					}
				}
			}
			for _, code := range business {
				ask(status.Error(code, ""), 50)
			}
			ask(kratosError(404), 50)
			if state := s.Snapshot().Layers[0]; state.Breaker != "closed" || state.Failures != 0 {
				t.Errorf("%+v", state)
			}
			ask(fault, 5)
			_, err := call(t.Context(), cc)
			wantRefused(t, err, shield.BreakerOpen)
		}
	})
}

// B20: what the caller has seen of a stream is not repeated.
func TestCaseB20NoStreamRetryOnceAMessageWasDelivered(t *testing.T) {
	bubble(t, func(t *testing.T) {
		m := []string{"m1", "m2", "m3"}
		c := grpcshield.Client{Unary: build(t, transient, shield.Retry{Backoff: at(ms)}), Stream: build(t)}

		b := &backend{acts: []act{{items: m[:2], err: errDown}, {items: m}}}
		items, err := all(open(t.Context(), t, dial(t, b, c), serverDesc))
		if !slices.Equal(items, m[:2]) {
			t.Error(items)
		}
		wantCode(t, err, codes.Unavailable)
		wantCalls(t, b, 1)

		b = &backend{acts: []act{{err: errDown}, {items: m}}}
		items, err = all(open(t.Context(), t, dial(t, b, c), serverDesc))
		if !slices.Equal(items, m) || !isEOF(err) {
			t.Error(items, err)
		}
		wantCalls(t, b, 2)

		for _, desc := range []*grpc.StreamDesc{clientDesc, bidiDesc} {
			b = &backend{acts: []act{{err: errDown}}}
			stream := open(t.Context(), t, dial(t, b, c), desc)
			_ = stream.CloseSend()
			_, err = receive(stream)
			wantCode(t, err, codes.Unavailable)
			wantCalls(t, b, 1)
		}
	})
}

// B70: metadata is that of the attempt whose result the caller gets.
func TestCaseB70MetadataOfTheReturnedAttemptOnly(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Retry{Max: 1, Backoff: at(ms)}, shield.Hedge{Delay: shield.OnFailure}} {
			for _, second := range []error{nil, errDown} {
				b := &backend{acts: []act{{node: "a", err: errDown}, {node: "b", err: second}}}
				var header, trailer metadata.MD
				_, err := call(t.Context(), dial(t, b, grpcshield.Client{Unary: build(t, transient, layer)}), grpc.Header(&header), grpc.Trailer(&trailer))
				wantCode(t, err, status.Code(second))
				wantNode(t, header, trailer, "b")
			}
		}
		// The end of a call that is cancelled between two attempts is no attempt's.
		b := &backend{acts: []act{{node: "a", err: errDown}}}
		cc := dial(t, b, grpcshield.Client{Unary: build(t, transient, shield.Retry{Backoff: at(hour)})})
		for _, run := range []func(context.Context, ...grpc.CallOption) error{
			func(ctx context.Context, options ...grpc.CallOption) error {
				_, err := call(ctx, cc, options...)
				return err
			},
			func(ctx context.Context, options ...grpc.CallOption) error {
				stream := open(ctx, t, cc, serverDesc, options...)
				_, err := receive(stream)
				if stream.Trailer() != nil {
					t.Error(stream.Trailer())
				}
				return err
			},
		} {
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*ms, cancel)
			var header, trailer metadata.MD
			err := run(ctx, grpc.Header(&header), grpc.Trailer(&trailer))
			wantCode(t, err, codes.Canceled)
			wantNode(t, header, trailer, "")
		}
	})
}
