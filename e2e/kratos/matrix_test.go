package kratos_test

import (
	"context"
	"errors"
	"testing"
	"time"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// TestShapesBothWays: messages and metadata of all four shapes arrive, through
// Kratos's middlewares on both sides.
func TestShapesBothWays(t *testing.T) {
	messages := map[string][]string{
		"unary": {"ada"}, "server stream": {"ada", "ada", "ada"}, "client stream": {"ada bob cleo"}, "bidi": {"ada", "bob"},
	}
	each(t, func(t *testing.T, d direction, s shape) {
		got, seen := d.call(d.context(t, s), t, s, "ada")
		if got.err != nil {
			t.Fatal(got.err)
		}
		if diff := cmp.Diff(messages[s.name], got.messages); diff != "" {
			t.Errorf("messages (-want +got):\n%s", diff)
		}
		want := sight{Operation: s.method, Tenant: "acme", Plain: "kept", Traced: true, Subject: "ada"}
		if !s.unary && d.ours {
			want.Subject = "" // Kratos's middlewares run per message, beside the handler's ctx
		}
		if !s.unary && !d.ours {
			want.Traced = false // and on its client after the header has left
		}
		if diff := cmp.Diff(want, seen, cmpopts.IgnoreUnexported(sight{})); diff != "" {
			t.Errorf("the handler saw (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"one", "two"}, got.header.Get("x-header")); diff != "" {
			t.Errorf("header (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"last"}, got.trailer.Get("x-trailer")); diff != "" {
			t.Errorf("trailer (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff([]string{"through the transport"}, got.header.Get("x-reply")); s.unary && diff != "" {
			t.Errorf("reply header (-want +got):\n%s", diff)
		}
	})
}

// TestErrorsBothWays: a Kratos error arrives whole, with the trailer that the
// handler set.
func TestErrorsBothWays(t *testing.T) {
	each(t, func(t *testing.T, d direction, s shape) {
		got, _ := d.call(d.context(t, s), t, s, failing)
		want, found := errUnknownName(), kerrors.FromError(got.err)
		type parts struct {
			Code            int32
			Reason, Message string
			Metadata        map[string]string
		}
		if diff := cmp.Diff(parts{want.Code, want.Reason, want.Message, want.Metadata},
			parts{found.GetCode(), found.GetReason(), found.GetMessage(), found.GetMetadata()}); diff != "" {
			t.Errorf("%v (-want +got):\n%s", got.err, diff)
		}
		if !kerrors.IsNotFound(got.err) || status.Code(got.err) != codes.NotFound {
			t.Errorf("IsNotFound %t, code %v", kerrors.IsNotFound(got.err), status.Code(got.err))
		}
		if diff := cmp.Diff([]string{"last"}, got.trailer.Get("x-trailer")); diff != "" {
			t.Errorf("trailer (-want +got):\n%s", diff)
		}
	})
}

// TestDeadlinesBothWays: the handler has the caller's time, less what the way took.
func TestDeadlinesBothWays(t *testing.T) {
	const timeout = 5 * time.Second
	each(t, func(t *testing.T, d direction, s shape) {
		ctx, cancel := context.WithTimeout(d.context(t, s), timeout)
		defer cancel()
		callers, _ := ctx.Deadline()
		got, seen := d.call(ctx, t, s, "ada")
		if got.err != nil {
			t.Fatal(got.err)
		}
		if !seen.bounded || seen.left <= 0 || seen.left > timeout {
			t.Errorf("bounded %t, %v left, want more than 0 and at most %v", seen.bounded, seen.left, timeout)
		}
		// The wire tells time left, so a deadline moves by the way there, and by
		// nothing else. The way includes the first connection.
		if moved := seen.deadline.Sub(callers); moved < -time.Millisecond || moved > time.Second {
			t.Errorf("the deadline moved by %v", moved)
		}
	})
}

// TestDeadlinesEndHandlersBothWays: when the caller's time is over both sides end.
func TestDeadlinesEndHandlersBothWays(t *testing.T) {
	each(t, func(t *testing.T, d direction, s shape) {
		if got, _ := d.call(d.context(t, s), t, s, "ada"); got.err != nil { // connected, so that a short time is enough
			t.Fatal(got.err)
		}
		ctx, cancel := context.WithTimeout(d.context(t, s), 200*time.Millisecond)
		defer cancel()
		got, _ := d.call(ctx, t, s, waiting)
		if status.Code(got.err) != codes.DeadlineExceeded || kerrors.Code(got.err) != 504 {
			t.Errorf("%v, want DeadlineExceeded and 504", got.err)
		}
		// Of what ends first, the deadline and the reset of the caller who gave
		// up, the handler may see either.
		if err := <-d.server.ended; !errors.Is(err, context.DeadlineExceeded) && !errors.Is(err, context.Canceled) {
			t.Errorf("the handler's ctx ended with %v", err)
		}
	})
}

// TestNoHiddenDeadline: without a deadline of the caller none arrives. (Kratos's
// own client adds one to unary calls.)
func TestNoHiddenDeadline(t *testing.T) {
	each(t, func(t *testing.T, d direction, s shape) {
		got, seen := d.call(d.context(t, s), t, s, "ada")
		if added := s.unary && !d.ours; got.err != nil || seen.bounded != added {
			t.Errorf("%v, bounded %t, want %t", got.err, seen.bounded, added)
		}
	})
}
