package grpcshield_test

import (
	"context"
	"errors"
	"slices"
	"strconv"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

func unary(layers ...shield.Layer) func(*testing.T) grpcshield.Client {
	return func(t *testing.T) grpcshield.Client {
		t.Helper()
		return grpcshield.Client{Unary: build(t, layers...)}
	}
}

func TestBehaviour01SuccessReturnsEverything(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, layers := range map[string][]shield.Layer{
			"one attempt": {shield.Breaker{}},
			"retry":       {shield.Retry{}},
			"hedge":       {shield.Hedge{}},
		} {
			cc := dial(t, &backend{acts: []act{{takes: ms}}}, unary(layers...)(t))
			var header, trailer metadata.MD
			var from peer.Peer
			reply, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
			if reply != "1" || err != nil || from.Addr == nil {
				t.Errorf("%s: %q, %v, peer %v", name, reply, err, from.Addr)
			}
			wantNode(t, header, trailer, "1")
		}
	})
}

// Go has no headers of a unary call before its end: a shield of one attempt gives
// the caller's own options to the transport, which fills them as soon as without
// a shield.
func TestBehaviour02OneAttemptFlowsThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Breaker{}, shield.Retry{Max: shield.None}, shield.Timeout{}} {
			inner := &tap{}
			cc := dial(t, &backend{}, unary(layer)(t), inner.dialOption())
			var header metadata.MD
			want := grpc.Header(&header)
			if _, err := call(t.Context(), cc, want); err != nil {
				t.Fatal(err)
			}
			if got := inner.options[0]; !slices.Contains(got, want) || node(header) != "1" {
				t.Errorf("%v: %v, %v", layer, got, header)
			}
		}
	})
}

func TestBehaviour03TransientIsThreeCodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		want := []codes.Code{codes.Unavailable, codes.DeadlineExceeded, codes.ResourceExhausted}
		for code := codes.OK; code <= codes.Unauthenticated; code++ {
			b := &backend{acts: []act{{err: status.Error(code, "")}}}
			_, _ = call(t.Context(), dial(t, b, unary(transient, shield.Retry{Max: 1, Backoff: at(0)})(t)))
			calls := int32(1)
			if slices.Contains(want, code) {
				calls = 2
			}
			if b.calls.Load() != calls {
				t.Errorf("%v: %d calls, want %d", code, b.calls.Load(), calls)
			}
		}
	})
}

func TestBehaviour04RetryThenSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}, {}}}
		reply, err := call(t.Context(), dial(t, b, unary(transient, shield.Retry{})(t)))
		if reply != "2" || err != nil {
			t.Error(reply, err)
		}
		wantCalls(t, b, 2)
	})
}

func TestBehaviour05FailureThatIsNotTransient(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, inner := &backend{acts: []act{{err: errFatal}}}, &tap{}
		_, err := call(t.Context(), dial(t, b, unary(transient, shield.Retry{})(t), inner.dialOption()))
		if err != inner.last() || status.Code(err) != codes.InvalidArgument { //nolint:errorlint // the very error
			t.Error(err)
		}
		wantCalls(t, b, 1)
	})
}

func TestBehaviour06LastErrorItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b, inner := &backend{acts: []act{{err: errDown}}}, &tap{}
		_, err := call(t.Context(), dial(t, b, unary(transient, shield.Retry{Max: 2})(t), inner.dialOption()))
		if err != inner.last() || len(inner.errs) != 3 { //nolint:errorlint // the very error
			t.Error(err, inner.errs)
		}
		wantCalls(t, b, 3)
	})
}

// A failed call is released when its Invoke has returned, which tells its OnFinish
// option: before the next one begins. The caller's own OnFinish hears once.
func TestBehaviour07SupersededCallsAreReleasedFirst(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var story []string
		b := &backend{acts: []act{{err: errDown}, {err: errDown}, {}}}
		inner := &tap{
			before: func(int) error { story = append(story, "begin"); return nil },
			after:  func(_ int, err error) error { story = append(story, status.Code(err).String()); return err },
		}
		cc := dial(t, b, unary(transient, shield.Retry{})(t), inner.dialOption())
		_, err := call(t.Context(), cc, grpc.OnFinish(func(err error) { story = append(story, "finish", status.Code(err).String()) }))
		want := []string{"begin", "Unavailable", "begin", "Unavailable", "begin", "OK", "finish", "OK"}
		if err != nil || !slices.Equal(story, want) {
			t.Errorf("%v, %v", err, story)
		}
	})
}

func TestBehaviour08SameErrorObjectIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}}}
		inner := &tap{after: func(int, error) error { return errDown }}
		var header, trailer metadata.MD
		_, err := call(t.Context(), dial(t, b, unary(transient, shield.Retry{Max: 2})(t), inner.dialOption()), grpc.Header(&header), grpc.Trailer(&trailer))
		if err != errDown { //nolint:errorlint // the very error
			t.Error(err)
		}
		wantNode(t, header, trailer, "3")
	})
}

func TestBehaviour09PredicatesSeeTheErrorItself(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var seen []error
		b := &backend{acts: []act{{err: errDown, trailer: metadata.Pairs("grpc-retry-pushback-ms", "5")}, {err: errFatal}}}
		clause := shield.Match("seen", func(_ context.Context, err error) bool {
			seen = append(seen, err)
			return status.Code(err) == codes.Unavailable
		})
		inner := &tap{}
		_, _ = call(t.Context(), dial(t, b, unary(shield.On(clause), shield.Retry{})(t), inner.dialOption()))
		if !slices.Equal(seen, inner.errs) {
			t.Errorf("%v, want %v", seen, inner.errs)
		}
	})
}

func TestBehaviour10NoShieldIsAnError(t *testing.T) {
	t.Parallel()
	if _, err := grpcshield.Dial(grpcshield.Client{}); err == nil {
		t.Error("Dial took a client without a shield")
	}
	if _, err := grpcshield.UnaryInterceptor(grpcshield.Client{AllowChannelRetry: true}); err == nil {
		t.Error("UnaryInterceptor did")
	}
	if _, err := grpcshield.StreamInterceptor(grpcshield.Client{}); err == nil {
		t.Error("StreamInterceptor did")
	}
}

func TestBehaviour11OpenBreaker(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layers := range [][]shield.Layer{{shield.Breaker{Failures: 1}}, {shield.Breaker{Failures: 1}, shield.Retry{Max: 1}}} {
			b := &backend{acts: []act{{err: errDown, trailer: metadata.Pairs("grpc-retry-pushback-ms", "-1")}}}
			cc := dial(t, b, unary(layers...)(t))
			_, _ = call(t.Context(), cc)
			var header, trailer metadata.MD
			_, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer))
			wantCode(t, err, codes.Unavailable)
			wantRefused(t, err, shield.BreakerOpen)
			wantNode(t, header, trailer, "")
			wantCalls(t, b, 1)
		}
	})
}

func TestBehaviour12BreakerOpensBetweenAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}}}
		cc := dial(t, b, unary(transient, shield.Retry{}, shield.Breaker{Failures: 2})(t))
		var header, trailer metadata.MD
		var from peer.Peer
		_, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from))
		wantRefused(t, err, shield.BreakerOpen)
		wantNode(t, header, trailer, "")
		if from.Addr != nil {
			t.Error("the peer of a failed attempt is left")
		}
		wantCalls(t, b, 2)
	})
}

// A call that the client cancels has no trailer of the server; its status is the
// cause of the timeout, and its headers are there.
func TestBehaviour13TimeoutKeepsTheAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, layers := range map[string][]shield.Layer{
			"one attempt": {shield.Timeout{After: 50 * ms}},
			"retry":       {shield.Retry{Max: 1, Backoff: at(0)}, shield.Timeout{After: 50 * ms}},
		} {
			b := &backend{acts: []act{{header: ms, takes: hour}}}
			var header metadata.MD
			_, err := call(t.Context(), dial(t, b, unary(layers...)(t)), grpc.Header(&header))
			wantCode(t, err, codes.DeadlineExceeded)
			var own *shield.TimedOut
			if !errors.As(err, &own) || own.After != 50*ms || status.Code(own.Cause) != codes.DeadlineExceeded {
				t.Errorf("%s: %v", name, err)
			}
			if want := strconv.Itoa(int(b.calls.Load())); node(header) != want {
				t.Errorf("%s: header of %q, want %q", name, node(header), want)
			}
		}
	})
}

func TestBehaviour14HedgeSelectsAnEarlyFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{header: ms, takes: hour}, {takes: ms, err: errFatal}}}
		cc := dial(t, b, unary(transient, shield.Hedge{Delay: 10 * ms})(t))
		var header, trailer metadata.MD
		_, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer))
		wantCode(t, err, codes.InvalidArgument)
		wantNode(t, header, trailer, "2")
	})
}

func TestBehaviour15HedgesWithTheSameErrorObject(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: 50 * ms, err: errDown}, {takes: 5 * ms, err: errDown}}}
		inner := &tap{after: func(int, error) error { return errDown }}
		cc := dial(t, b, unary(transient, shield.Hedge{Delay: 10 * ms})(t), inner.dialOption())
		var header, trailer metadata.MD
		_, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != errDown { //nolint:errorlint // the very error
			t.Error(err)
		}
		wantNode(t, header, trailer, "1") // it failed last: of failures alone the last is selected
	})
}

// An attempt that never got a stream has no headers: they fail with it, and say
// nothing of their own.
func TestBehaviour16NoHeadersDoNotHideTheError(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}}}
		inner := &tap{before: func(n int) error {
			if n == 2 {
				return errFatal
			}
			return nil
		}}
		cc := dial(t, b, unary(transient, shield.Retry{})(t), inner.dialOption())
		var header, trailer metadata.MD
		_, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer))
		if err != errFatal { //nolint:errorlint // the very error
			t.Error(err)
		}
		wantNode(t, header, trailer, "") // and not the first attempt's
	})
}

var errCause = errors.New("the user has left")

func TestBehaviour17CallerCancels(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, layers := range map[string][]shield.Layer{
			"one attempt": {shield.Timeout{}}, "retry": {shield.Retry{}}, "hedge": {shield.Hedge{Delay: 10 * ms}},
		} {
			b := &backend{acts: []act{{takes: hour}}}
			cc := dial(t, b, unary(layers...)(t))
			ctx, cancel := context.WithCancelCause(t.Context())
			time.AfterFunc(5*ms, func() { cancel(errCause) })
			_, err := call(ctx, cc)
			wantCode(t, err, codes.Canceled)
			if !errors.Is(err, context.Canceled) || !errors.Is(err, errCause) || timedOut(err) {
				t.Errorf("%s: %v", name, err)
			}
			synctest.Wait()
			if b.cancelled.Load() != 1 {
				t.Errorf("%s: the handler has not seen it", name)
			}
		}
	})
}

func TestBehaviour18TimeoutCancelsTheCall(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: hour}}}
		_, err := call(t.Context(), dial(t, b, unary(shield.Timeout{After: 50 * ms})(t)))
		synctest.Wait()
		if !timedOut(err) || b.cancelled.Load() != 1 {
			t.Error(err, b.cancelled.Load())
		}
	})
}

func TestBehaviour19CallersDeadlineIsNoTimeout(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: hour}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
		defer cancel()
		_, err := call(ctx, dial(t, b, unary(shield.Timeout{After: 50 * ms})(t)))
		wantCode(t, err, codes.DeadlineExceeded)
		if timedOut(err) {
			t.Error(err)
		}
	})
}

func deadlineStops(t *testing.T, layers ...shield.Layer) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: hour}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
		defer cancel()
		began := time.Now()
		_, err := call(ctx, dial(t, b, unary(layers...)(t)))
		wantCode(t, err, codes.DeadlineExceeded)
		wantCalls(t, b, 1)
		if took := time.Since(began); took != 30*ms || timedOut(err) {
			t.Error(took, err)
		}
	})
}

func TestBehaviour20DeadlineStopsRetryForever(t *testing.T) {
	deadlineStops(t, transient, shield.Retry{Max: shield.Forever, Backoff: at(0)})
}

func TestBehaviour21DeadlineStopsRetryOfEverything(t *testing.T) {
	everything := shield.Match("everything", func(context.Context, error) bool { return true })
	deadlineStops(t, shield.On(everything), shield.Retry{Max: shield.Forever, Backoff: at(0)})
}

func TestBehaviour22LateNoiseIsTheDeadline(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, noise := range []error{
			status.Error(codes.Canceled, "rst"), status.Error(codes.Unknown, "rst"), status.Error(codes.Unavailable, "rst"),
			context.Canceled, errors.New("closed pipe"),
		} {
			for _, layer := range []shield.Layer{shield.Breaker{}, shield.Retry{Max: shield.Forever, Backoff: at(0)}} {
				b := &backend{acts: []act{{header: ms, takes: hour}}}
				inner := &tap{after: func(int, error) error { return noise }}
				cc := dial(t, b, unary(transient, layer)(t), inner.dialOption())
				ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
				var header metadata.MD
				_, err := call(ctx, cc, grpc.Header(&header))
				cancel()
				wantCode(t, err, codes.DeadlineExceeded)
				wantCalls(t, b, 1)
				if timedOut(err) || !errors.Is(err, noise) || node(header) != "1" {
					t.Errorf("%v: %v, header of %q", noise, err, node(header))
				}
			}
		}
		// After the caller's cancel, it is that.
		inner := &tap{after: func(_ int, err error) error { time.Sleep(50 * ms); return err }}
		short, stop := context.WithTimeout(t.Context(), 30*ms)
		time.AfterFunc(5*ms, stop)
		_, err := call(short, dial(t, &backend{acts: []act{{takes: hour}}}, unary(shield.Breaker{})(t), inner.dialOption()))
		wantCode(t, err, codes.Canceled)
		// Before the deadline, they are what they are.
		b := &backend{acts: []act{{err: status.Error(codes.Unknown, "")}}}
		ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
		defer cancel()
		_, err = call(ctx, dial(t, b, unary(shield.Breaker{})(t)))
		wantCode(t, err, codes.Unknown)
	})
}

func TestBehaviour23NoTimeForAnotherAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			layer shield.Layer
			acts  []act
		}{
			"retry": {shield.Retry{Backoff: at(50 * ms)}, []act{{takes: 10 * ms, err: errDown}}},
			"hedge": {shield.Hedge{Delay: 5 * ms}, []act{{takes: 10 * ms, err: errDown}, {takes: hour}}},
		} {
			b, inner := &backend{acts: c.acts}, &tap{}
			cc := dial(t, b, unary(transient, c.layer)(t), inner.dialOption())
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			var header, trailer metadata.MD
			_, err := call(ctx, cc, grpc.Header(&header), grpc.Trailer(&trailer))
			cancel()
			if err != inner.errs[0] || status.Code(err) != codes.Unavailable { //nolint:errorlint // the very error
				t.Errorf("%s: %v", name, err)
			}
			wantNode(t, header, trailer, "1")
		}
	})
}

func TestBehaviour24CompletedCallLetsGo(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Breaker{}, shield.Timeout{}, shield.Retry{}, shield.Hedge{}} {
			b := &backend{}
			cc := dial(t, b, unary(layer)(t))
			ctx, cancel := context.WithCancel(t.Context())
			var header metadata.MD
			reply, err := call(ctx, cc, grpc.Header(&header))
			cancel()
			synctest.Wait()
			if reply != "1" || err != nil || node(header) != "1" || b.cancelled.Load() != 0 || b.done.Load() != 1 {
				t.Errorf("%v: %q, %v, %v", layer, reply, err, header)
			}
			if _, err := call(t.Context(), cc); err != nil {
				t.Error(err)
			}
		}
	})
}

// To dispose of a unary call is to cancel its ctx.
func TestBehaviour25CancelWhilePending(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Breaker{}, shield.Retry{}, shield.Hedge{Max: 2, Delay: 2 * ms}} {
			b := &backend{acts: []act{{takes: hour}}}
			cc := dial(t, b, unary(layer)(t))
			ctx, cancel := context.WithCancel(t.Context())
			time.AfterFunc(5*ms, func() { cancel(); cancel() })
			finished := 0
			_, err := call(ctx, cc, grpc.OnFinish(func(error) { finished++ }))
			wantCode(t, err, codes.Canceled)
			synctest.Wait()
			if b.cancelled.Load() != b.calls.Load() || finished != 1 {
				t.Errorf("%v: %d of %d cancelled, finished %d times", layer, b.cancelled.Load(), b.calls.Load(), finished)
			}
		}
	})
}

func TestBehaviour26LosersAreCancelled(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: hour}, {takes: 5 * ms}}}
		inner := &tap{}
		cc := dial(t, b, unary(transient, shield.Hedge{Delay: 10 * ms})(t), inner.dialOption())
		reply, err := call(t.Context(), cc)
		if reply != "2" || err != nil || len(inner.errs) != 2 { // the loser has ended before the call
			t.Errorf("%q, %v, attempts ended with %v", reply, err, inner.errs)
		}
		synctest.Wait()
		if b.cancelled.Load() != 1 {
			t.Error("the loser's handler goes on")
		}
	})
}

// An attempt that begins when the call is over begins nothing.
func TestBehaviour27NoAttemptAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: 10 * ms}}}
		inner := &tap{}
		// The layer holds the second attempt until the first has won.
		late := &holding{until: make(chan struct{})}
		cc := dial(t, b, unary(shield.Hedge{Delay: 5 * ms}, shield.Use(late))(t), inner.dialOption())
		reply, err := call(t.Context(), cc)
		close(late.until)
		synctest.Wait()
		if reply != "1" || err != nil || len(inner.options) != 1 {
			t.Errorf("%q, %v, %d attempts", reply, err, len(inner.options))
		}
		wantCalls(t, b, 1)

		late, b = &holding{until: make(chan struct{})}, &backend{acts: []act{{takes: 10 * ms, items: abc}}}
		opened := &streamTap{}
		stream := open(t.Context(), t, dial(t, b, opening(shield.Hedge{Delay: 5 * ms}, shield.Use(late))(t), opened.dialOption()), serverDesc)
		if item, err := receive(stream); item != "a" || err != nil {
			t.Error(item, err)
		}
		close(late.until)
		synctest.Wait()
		if _, err := all(stream); !isEOF(err) || len(opened.options) != 1 {
			t.Error(err, len(opened.options))
		}

		late, b, opened = &holding{until: make(chan struct{})}, &backend{acts: []act{{takes: 10 * ms, err: errFatal}}}, &streamTap{}
		stream = open(t.Context(), t, dial(t, b, opening(transient, shield.Hedge{Delay: 5 * ms}, shield.Use(late))(t), opened.dialOption()), serverDesc)
		_, err = receive(stream)
		close(late.until)
		synctest.Wait()
		wantCode(t, err, codes.InvalidArgument)
		if len(opened.options) != 1 {
			t.Error(len(opened.options))
		}
	})
}

// holding is a layer that keeps every call but the first.
type holding struct {
	until chan struct{}
	calls atomic.Int32
}

func (h *holding) Handle(ctx context.Context, next func(context.Context) error) error {
	if h.calls.Add(1) > 1 {
		<-h.until
	}
	return next(ctx)
}
func (h *holding) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1} }
func (h *holding) String() string        { return "Holding" }
