package grpcshield_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

// operations are shields of one attempt that see every operation.
func operations(t *testing.T, layers ...shield.Layer) grpcshield.Client {
	t.Helper()
	return grpcshield.Client{Open: build(t), Stream: build(t, layers...)}
}

// stuff fills the window of a peer that does not read, with a write that is not
// held yet: the next one is.
func stuff(t *testing.T, stream grpc.ClientStream) *wrapperspb.StringValue {
	t.Helper()
	large := wrapperspb.String(strings.Repeat("x", 1<<17))
	if err := stream.SendMsg(large); err != nil {
		t.Fatal(err)
	}
	return large
}

func TestBehaviour48NoRepeatingShieldForSentStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{retry, shield.Hedge{}} {
			repeating := build(t, layer)
			b := &backend{}
			cc := dial(t, b, grpcshield.Client{Unary: repeating})
			for _, desc := range []*grpc.StreamDesc{clientDesc, bidiDesc} {
				_, err := tryOpen(t.Context(), cc, desc)
				wantCode(t, err, codes.FailedPrecondition)
				if err == nil || !strings.Contains(err.Error(), desc.StreamName) || !strings.Contains(err.Error(), repeating.String()) {
					t.Error(err)
				}
			}
			synctest.Wait()
			wantCalls(t, b, 0)
			if _, err := grpcshield.Dial(grpcshield.Client{Stream: repeating}); err == nil {
				t.Errorf("operations under %v", repeating)
			}
		}
	})
}

func TestBehaviour49WritesHappenOnce(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{}
		stream := open(t.Context(), t, dial(t, b, operations(t, shield.Timeout{After: 50 * ms})), clientDesc)
		send(t, stream, abc...)
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if item, err := receive(stream); item != "1" || err != nil || !slices.Equal(b.requests(), abc) {
			t.Error(item, err, b.requests())
		}

		b = &backend{acts: []act{{gap: hour}}} // reads nothing
		stream = open(t.Context(), t, dial(t, b, operations(t, shield.Timeout{After: 50 * ms})), clientDesc)
		large := stuff(t, stream)
		began := time.Now()
		err := stream.SendMsg(large)
		if took := time.Since(began); took != 50*ms || !timedOut(err) {
			t.Error(took, err)
		}
		_, again := receive(stream)
		synctest.Wait()
		if again != err || b.cancelled.Load() != 1 || len(b.requests()) > 0 { //nolint:errorlint // the very error
			t.Error(again, b.cancelled.Load(), len(b.requests()))
		}
		wantCalls(t, b, 1)
	})
}

func TestBehaviour50ResponseWaitHoldsNoPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{}
		stream := open(t.Context(), t, dial(t, b, operations(t, shield.Concurrency{Max: 1})), clientDesc)
		p := readSoon(stream)
		synctest.Wait()
		send(t, stream, abc...)
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		<-p.done
		if p.item != "1" || p.err != nil || !slices.Equal(b.requests(), abc) {
			t.Error(p.item, p.err, b.requests())
		}
	})
}

func TestBehaviour51HeaderWaitHoldsNoPermit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, desc := range []*grpc.StreamDesc{clientDesc, bidiDesc} {
			b := &backend{acts: []act{{header: 20 * ms}}}
			stream := open(t.Context(), t, dial(t, b, operations(t, shield.Concurrency{Max: 1})), desc)
			var md metadata.MD
			got := make(chan struct{})
			go func() {
				defer close(got)
				md, _ = stream.Header()
			}()
			synctest.Wait()
			send(t, stream, abc...)
			<-got
			if err := stream.CloseSend(); err != nil || node(md) != "1" {
				t.Error(err, md)
			}
			_, _ = all(stream)
		}
	})
}

// A write has no ctx of its own in Go: the call's cancel frees a blocked one, and
// the status is read, as grpc-go has it.
func TestBehaviour52CancelFreesAWrite(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Concurrency{}, shield.Timeout{After: hour}} {
			b := &backend{acts: []act{{gap: hour}}}
			ctx, cancel := context.WithCancelCause(t.Context())
			stream := open(ctx, t, dial(t, b, operations(t, layer)), clientDesc)
			large := stuff(t, stream)
			time.AfterFunc(5*ms, func() { cancel(errCause) })
			if err := stream.SendMsg(large); !isEOF(err) && !errors.Is(err, errCause) {
				t.Error(err)
			}
			_, err := receive(stream)
			wantCode(t, err, codes.Canceled)
			if !errors.Is(err, errCause) || timedOut(err) {
				t.Error(err)
			}
		}
	})
}

// Go's writes have no options: those of the call arrive, and the message itself.
func TestBehaviour53OptionsAndMessagesArrive(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := &streamTap{}
		var header metadata.MD
		option, message := grpc.Header(&header), wrapperspb.String("a")
		stream := open(t.Context(), t, dial(t, &backend{}, operations(t, shield.Concurrency{}), inner.dialOption()), clientDesc, option)
		if err := errors.Join(stream.SendMsg(message), stream.CloseSend()); err != nil {
			t.Error(err)
		}
		if _, err := receive(stream); err != nil || node(header) != "1" {
			t.Error(err, header)
		}
		if !slices.Contains(inner.options[0], option) || !slices.Equal(inner.messages, []any{message}) {
			t.Error(inner.options, inner.messages)
		}
	})
}

func TestBehaviour54OpeningFailureItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Breaker{Failures: 1}, shield.Timeout{}} {
			inner := &streamTap{open: func(int) error { return errDown }}
			cc := dial(t, &backend{}, grpcshield.Client{Unary: build(t, layer)}, inner.dialOption())
			for _, desc := range []*grpc.StreamDesc{clientDesc, bidiDesc} {
				stream, err := tryOpen(t.Context(), cc, desc)
				if layer == (shield.Breaker{Failures: 1}) && desc == bidiDesc {
					wantRefused(t, err, shield.BreakerOpen)
				} else if err != errDown { //nolint:errorlint // the very error
					t.Error(err)
				}
				if stream != nil {
					t.Error("a stream beside the error")
				}
			}
		}
		// A refused call ends as well.
		cc := dial(t, &backend{}, operations(t))
		refusing := build(t, shield.Breaker{})
		if err := refusing.Isolate("test"); err != nil {
			t.Fatal(err)
		}
		other := dial(t, &backend{}, grpcshield.Client{Open: refusing})
		for c, want := range map[*grpc.ClientConn]codes.Code{cc: codes.OK, other: codes.Unavailable} {
			finished := 0
			stream, err := tryOpen(t.Context(), c, clientDesc, grpc.OnFinish(func(error) { finished++ }))
			wantCode(t, err, want)
			if err == nil {
				_ = stream.CloseSend()
				_, _ = receive(stream)
			}
			if finished != 1 {
				t.Errorf("%v: finished %d times", want, finished)
			}
		}
	})
}

func TestBehaviour55MetadataOfTheResponse(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, fails := range []error{nil, errFatal} {
			ctx, cancel := context.WithCancel(t.Context())
			finished := 0
			stream := open(ctx, t, dial(t, &backend{acts: []act{{err: fails}}}, operations(t, shield.Timeout{})), clientDesc, grpc.OnFinish(func(error) { finished++ }))
			send(t, stream, abc...)
			_ = stream.CloseSend()
			_, err := receive(stream)
			if (err == nil) != (fails == nil) {
				t.Error(err)
			}
			for range 2 {
				md, _ := stream.Header()
				if err == nil {
					wantNode(t, md, stream.Trailer(), "1")
				} else if node(stream.Trailer()) != "1" {
					t.Error(stream.Trailer())
				}
				cancel() // changes nothing
			}
			cancel()
			synctest.Wait()
			if finished != 1 {
				t.Errorf("finished %d times", finished)
			}
		}
	})
}

func TestBehaviour56BothWays(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{}
		stream := open(t.Context(), t, dial(t, b, operations(t, shield.Concurrency{Max: 2}, shield.Timeout{After: 50 * ms})), bidiDesc)
		for _, text := range abc {
			send(t, stream, text)
			if item, err := receive(stream); item != "echo "+text || err != nil {
				t.Error(item, err)
			}
		}
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := receive(stream); !isEOF(err) || !slices.Equal(b.requests(), abc) {
			t.Error(err, b.requests())
		}
		md, _ := stream.Header()
		wantNode(t, md, stream.Trailer(), "1")

		// The call's cancel is the caller's, a read's timeout the shield's.
		ctx, cancel := context.WithCancelCause(t.Context())
		stream = open(ctx, t, dial(t, &backend{}, operations(t, shield.Timeout{After: 50 * ms})), bidiDesc)
		time.AfterFunc(5*ms, func() { cancel(errCause) })
		_, err := receive(stream)
		wantCode(t, err, codes.Canceled)
		if !errors.Is(err, errCause) || timedOut(err) {
			t.Error(err)
		}
		stream = open(t.Context(), t, dial(t, &backend{}, operations(t, shield.Timeout{After: 50 * ms})), bidiDesc)
		if _, err = receive(stream); !timedOut(err) {
			t.Error(err)
		}
		if err := stream.SendMsg(wrapperspb.String("late")); !timedOut(err) {
			t.Error(err)
		}
	})
}

// An operation that is refused ends the call: its caller will not ask again.
func TestRefusedOperationEndsTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{}
		stream := open(t.Context(), t, dial(t, b, operations(t, shield.Rate{Permits: 2, Per: hour})), bidiDesc)
		send(t, stream, "a")
		if item, err := receive(stream); item != "echo a" || err != nil {
			t.Error(item, err)
		}
		err := stream.SendMsg(wrapperspb.String("b"))
		wantRefused(t, err, shield.RateLimited)
		wantCode(t, err, codes.ResourceExhausted)
		_, again := receive(stream)
		_, header := stream.Header()
		synctest.Wait()
		if again != err || header != err || b.cancelled.Load() != 1 || stream.Trailer() != nil { //nolint:errorlint // the very error
			t.Error(again, header, b.cancelled.Load(), stream.Trailer())
		}
	})
}

// A write that times out tells a read beside it why the call has ended.
func TestTimeoutOfAWriteIsTheReadsToo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, sent := range []time.Duration{0, 5 * ms} { // the read returns first then
			inner := &streamTap{sent: sent}
			stream := open(t.Context(), t, dial(t, &backend{acts: []act{{takes: hour}}}, operations(t, shield.Timeout{After: 50 * ms}), inner.dialOption()), bidiDesc)
			large := stuff(t, stream)
			written := make(chan error, 1)
			go func() { written <- stream.SendMsg(large) }()
			time.Sleep(20 * ms)
			_, err := receive(stream)
			if first := <-written; !timedOut(first) || !timedOut(err) {
				t.Errorf("write: %v, read: %v", first, err)
			}
		}
	})
}

// An opening that has come about too late is none.
func TestOpeningThatIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, desc := range []*grpc.StreamDesc{clientDesc, bidiDesc, serverDesc} {
			for _, late := range []time.Duration{20 * ms, 30 * ms, 60 * ms} {
				b := &backend{acts: []act{{items: abc}}}
				inner := &streamTap{late: late}
				stream, err := tryOpen(t.Context(), dial(t, b, grpcshield.Client{Open: build(t, shield.Timeout{After: 50 * ms})}, inner.dialOption()), desc)
				if err == nil {
					_ = stream.CloseSend()
					_, err = receive(stream)
				}
				// A server stream is late twice: when it is opened, and with its message.
				if want := late > 50*ms || late == 30*ms && desc == serverDesc; timedOut(err) != want || (err != nil) != want {
					t.Errorf("%s, %v late: %v", desc.StreamName, late, err)
				}
				if stream != nil {
					_, _ = all(stream)
				}
			}
		}
	})
}
