package grpcshield_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

// pushed fails, with these values of the pushback trailer.
func pushed(values ...string) act {
	return act{err: errDown, trailer: metadata.MD{"grpc-retry-pushback-ms": values}}
}

// transfers runs a unary call and the opening of a server stream.
func transfers(t *testing.T, test func(t *testing.T, run func(context.Context, *backend, *shield.Shield, ...grpc.CallOption) error)) {
	t.Helper()
	bubble(t, func(t *testing.T) {
		test(t, func(ctx context.Context, b *backend, s *shield.Shield, options ...grpc.CallOption) error {
			_, err := call(ctx, dial(t, b, grpcshield.Client{Unary: s}), options...)
			return err
		})
		test(t, func(ctx context.Context, b *backend, s *shield.Shield, options ...grpc.CallOption) error {
			_, err := all(open(ctx, t, dial(t, b, grpcshield.Client{Open: s}), serverDesc, options...))
			if isEOF(err) {
				return nil
			}
			return err
		})
	})
}

type runner = func(context.Context, *backend, *shield.Shield, ...grpc.CallOption) error

func TestBehaviour69PushbackReplacesOneDelay(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, c := range []struct {
			retry shield.Retry
			acts  []act
			took  time.Duration
		}{
			{shield.Retry{Backoff: at(time.Second)}, []act{pushed("40"), {}}, 40 * ms},
			{shield.Retry{Backoff: at(time.Second)}, []act{pushed("0"), {}}, 0},
			{shield.Retry{Backoff: at(time.Second)}, []act{pushed("40"), {err: errDown}, {}}, 1040 * ms},
			{shield.Retry{Backoff: at(time.Second)}, []act{pushed("2147483647"), {}}, time.Second},
			{shield.Retry{Backoff: at(time.Second), MaxDelay: 7 * ms}, []act{pushed("40"), {}}, 7 * ms},
		} {
			b, began := &backend{acts: c.acts}, time.Now()
			err := run(t.Context(), b, build(t, transient, c.retry))
			if took := time.Since(began); took != c.took || err != nil {
				t.Errorf("%+v: %v, %v", c, took, err)
			}
			wantCalls(t, b, int32(len(c.acts)))
		}
	})
}

func TestBehaviour70PushbackStops(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, values := range [][]string{{"-1"}, {"soon"}, {""}, {"1.5"}, {"2147483648"}, {"1", "2"}, {"1", "1"}} {
			b := &backend{acts: []act{pushed(values...)}}
			var header, trailer metadata.MD
			err := run(t.Context(), b, build(t, transient, shield.Retry{Backoff: at(0)}), grpc.Header(&header), grpc.Trailer(&trailer))
			wantCode(t, err, codes.Unavailable)
			wantCalls(t, b, 1)
			wantNode(t, header, trailer, "1")
			if got := trailer["grpc-retry-pushback-ms"]; !slices.Equal(got, values) {
				t.Error(got)
			}
		}
	})
}

func TestBehaviour71PushbackStopsAnOuterHedge(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, delay := range []time.Duration{shield.OnFailure, time.Second} {
			b := &backend{acts: []act{pushed("-1")}}
			err := run(t.Context(), b, build(t, transient, shield.Hedge{Max: 3, Delay: delay}, shield.Retry{Backoff: at(0)}))
			wantCode(t, err, codes.Unavailable)
			wantCalls(t, b, 1)
		}
		// An attempt beside it runs on, and is not retried either.
		b := &backend{acts: []act{{takes: 50 * ms, err: errDown}, pushed("-1")}}
		err := run(t.Context(), b, build(t, transient, shield.Hedge{Max: 3, Delay: 10 * ms}, shield.Retry{Backoff: at(0)}))
		wantCode(t, err, codes.Unavailable)
		wantCalls(t, b, 2)
	})
}

func TestBehaviour72PushbackOfTheLastFailure(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		outer := map[string]shield.Layer{
			"retry": shield.Retry{Backoff: at(0)}, "hedge": shield.Hedge{Delay: shield.OnFailure},
		}
		for name, layer := range outer {
			b := &backend{acts: []act{{err: errDown}, {err: errDown}, pushed("-1")}}
			err := run(t.Context(), b, build(t, transient, layer, shield.Retry{Max: 2, Backoff: at(0)}))
			wantCode(t, err, codes.Unavailable)
			if b.calls.Load() != 3 {
				t.Errorf("%s: %d calls", name, b.calls.Load())
			}
		}
		// A delay is for the outer layer too.
		b := &backend{acts: []act{{err: errDown}, pushed("40"), {}}}
		began := time.Now()
		if err := run(t.Context(), b, build(t, transient, shield.Retry{Backoff: at(time.Second)}, shield.Retry{Max: 1, Backoff: at(0)})); err != nil || time.Since(began) != 40*ms {
			t.Error(err, time.Since(began))
		}
	})
}

func TestBehaviour73PushbackChangesNoAccount(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, a := range []act{pushed(), pushed("5"), pushed("-1")} {
			budget := shield.NewBudget(10, 1)
			s := build(t, transient, shield.Breaker{Failures: 2}, shield.Retry{Max: 1, Backoff: at(time.Second), Budget: budget})
			began := time.Now()
			for range 2 {
				_ = run(t.Context(), &backend{acts: []act{a}}, s)
			}
			state := s.Snapshot()
			attempts, took := 4, 2*time.Second // without a wish
			switch {
			case slices.Equal(a.trailer["grpc-retry-pushback-ms"], []string{"5"}):
				took = 10 * ms
			case len(a.trailer["grpc-retry-pushback-ms"]) > 0:
				attempts, took = 2, 0
			}
			if state.Layers[0].Breaker != "open" || state.Layers[1].Tokens != float64(10-attempts) || time.Since(began) != took {
				t.Errorf("%v: %+v, %v", a.trailer, state.Layers, time.Since(began))
			}
		}
	})
}

func TestBehaviour74OneAbsoluteDeadline(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, layers := range [][]shield.Layer{
			{transient, shield.Retry{Backoff: at(100 * ms)}},
			{transient, shield.Hedge{Max: 2, Delay: 100 * ms}},
			{transient, shield.Timeout{After: time.Minute}, shield.Retry{Backoff: at(100 * ms)}, shield.Timeout{After: 50 * time.Second}},
		} {
			b := &backend{acts: []act{{takes: 100 * ms, err: errDown}, {takes: 100 * ms, err: errDown}, {}}}
			ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
			want, _ := ctx.Deadline()
			err := run(ctx, b, build(t, layers...))
			cancel()
			wantCalls(t, b, 3)
			for i, got := range b.deadlines {
				if err != nil || !got.Equal(want) {
					t.Errorf("attempt %d: %v, want %v (%v)", i+1, got, want, err)
				}
			}
		}
	})
}

func TestBehaviour75SameRequestAndOptions(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, layer := range []shield.Layer{shield.Retry{Backoff: at(0)}, shield.Hedge{Max: 2, Delay: shield.OnFailure}} {
			b := &backend{acts: []act{{err: errDown}, {err: errDown}, {}}}
			ctx := metadata.AppendToOutgoingContext(t.Context(), "x-tenant", "a", "x-tenant", "b")
			if err := run(ctx, b, build(t, transient, layer), grpc.CallContentSubtype("proto")); err != nil {
				t.Error(err)
			}
			if got := b.requests(); !slices.Equal(got, []string{"hello", "hello", "hello"}) {
				t.Error(got)
			}
			for i, md := range b.metadata {
				if fmt.Sprint(md) != fmt.Sprint(b.metadata[0]) || !slices.Equal(md["x-tenant"], []string{"a", "b"}) || md["content-type"][0] != "application/grpc+proto" {
					t.Errorf("attempt %d: %v", i+1, md)
				}
			}
		}
	})
}

// To wrap an attempt's error is what an interceptor further in may do, and a
// layer of one's own.
func TestBehaviour76PushbackThroughWrappedErrors(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, wrap := range map[string]func(error) error{
			"%w":   func(err error) error { return fmt.Errorf("attempt: %w", err) },
			"Join": func(err error) error { return errors.Join(errCause, err) },
			"both": func(err error) error { return errors.Join(errCause, fmt.Errorf("attempt: %w", err)) },
		} {
			layer := shield.Use(wrapping{wrap})
			inner := &tap{after: func(_ int, err error) error {
				if err == nil {
					return nil
				}
				return wrap(err)
			}}
			for _, c := range []struct {
				acts []act
				took time.Duration
			}{{[]act{pushed("40"), {}}, 40 * ms}, {[]act{pushed("-1")}, 0}} {
				for _, s := range []*shield.Shield{
					build(t, transient, shield.Retry{Backoff: at(time.Second)}),
					build(t, transient, shield.Retry{Backoff: at(time.Second)}, layer),
					build(t, transient, shield.Hedge{Delay: shield.OnFailure}, layer),
				} {
					b, began := &backend{acts: c.acts}, time.Now()
					_, err := call(t.Context(), dial(t, b, grpcshield.Client{Unary: s}, inner.dialOption()))
					if took := time.Since(began); took != c.took || b.calls.Load() != int32(len(c.acts)) {
						t.Errorf("%s, %v: %v, %d calls, %v", name, s, took, b.calls.Load(), err)
					}
				}
			}
		}
	})
}

type wrapping struct{ form func(error) error }

func (w wrapping) Handle(ctx context.Context, next func(context.Context) error) error {
	if err := next(ctx); err != nil {
		return w.form(err)
	}
	return nil
}
func (w wrapping) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1} }
func (w wrapping) String() string        { return "Wrapping" }

// doubled is a delay function of one's own, that looks at the wish.
type doubled struct{}

func (doubled) Delay(t shield.Try) time.Duration {
	delay, _, ok := t.Outcome.Pushback()
	if !ok {
		return time.Second
	}
	return 2 * delay
}
func (doubled) String() string { return "doubled" }

func TestBehaviour77PushbackInDelayFunctions(t *testing.T) {
	transfers(t, func(t *testing.T, run runner) {
		for _, layers := range [][]shield.Layer{
			{transient, shield.Retry{Backoff: doubled{}, IgnorePushback: true}},
			{transient, shield.Retry{Backoff: doubled{}, IgnorePushback: true}, shield.Use(wrapping{func(err error) error { return fmt.Errorf("attempt: %w", err) }})},
			{transient, shield.Retry{Backoff: doubled{}, IgnorePushback: true}, shield.Retry{Max: shield.None}}, // an outer layer
		} {
			b, began := &backend{acts: []act{pushed("40"), {err: errDown}, {}}}, time.Now()
			if err := run(t.Context(), b, build(t, layers...)); err != nil || time.Since(began) != 1080*ms {
				t.Error(err, time.Since(began))
			}
		}
	})
}

func TestBehaviour78OperationTimeoutIsNoIdleTimer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		const bound = 50 * ms
		idle := func() { time.Sleep(10 * bound) }
		c := grpcshield.Client{Open: build(t, shield.Timeout{After: bound}), Stream: build(t, shield.Timeout{After: bound})}

		stream := open(t.Context(), t, dial(t, &backend{}, c), bidiDesc)
		for _, text := range abc {
			idle()
			send(t, stream, text)
			idle()
			if item, err := receive(stream); item != "echo "+text || err != nil {
				t.Error(item, err)
			}
		}
		idle()
		if err := stream.CloseSend(); err != nil {
			t.Error(err)
		}
		if _, err := receive(stream); !isEOF(err) {
			t.Error(err)
		}

		stream = open(t.Context(), t, dial(t, &backend{acts: []act{{items: abc, gap: ms}}}, c), serverDesc)
		for _, want := range abc {
			idle()
			if item, err := receive(stream); item != want || err != nil {
				t.Error(item, err)
			}
		}
		idle()
		if _, err := receive(stream); !isEOF(err) {
			t.Error(err)
		}

		// Nor does it bound the wait for the response of a client stream.
		stream = open(t.Context(), t, dial(t, &backend{acts: []act{{takes: 10 * bound}}}, c), clientDesc)
		if err := errors.Join(stream.SendMsg(wrapperspb.String("a")), stream.CloseSend()); err != nil {
			t.Error(err)
		}
		if item, err := receive(stream); item != "1" || err != nil {
			t.Error(item, err)
		}
	})
}
