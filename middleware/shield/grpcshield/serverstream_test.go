package grpcshield_test

import (
	"context"
	"errors"
	"slices"
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

var (
	abc   = []string{"a", "b", "c"}
	retry = shield.Retry{Backoff: at(ms)}
)

func opening(layers ...shield.Layer) func(*testing.T) grpcshield.Client {
	return func(t *testing.T) grpcshield.Client {
		t.Helper()
		return grpcshield.Client{Open: build(t, layers...)}
	}
}

func TestBehaviour28NothingIsSentUnread(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Breaker{}, retry} {
			b := &backend{acts: []act{{items: abc}}}
			cc := dial(t, b, opening(layer)(t))
			stream := open(t.Context(), t, cc, serverDesc)
			time.Sleep(time.Second)
			wantCalls(t, b, 0)
			if item, err := receive(stream); item != "a" || err != nil {
				t.Error(item, err)
			}
			wantCalls(t, b, 1)
			other := open(t.Context(), t, cc, serverDesc)
			if md, err := other.Header(); node(md) != "2" || err != nil {
				t.Error(md, err)
			}
			wantCalls(t, b, 2)
			for _, s := range []grpc.ClientStream{stream, other} {
				if _, err := all(s); !isEOF(err) {
					t.Error(err)
				}
			}
		}
	})
}

func TestBehaviour29RetryBeforeTheFirstItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}, {items: abc}}}
		cc := dial(t, b, opening(transient, retry)(t))
		var header, trailer metadata.MD
		var from peer.Peer
		finished := 0
		stream := open(t.Context(), t, cc, serverDesc, grpc.Header(&header), grpc.Trailer(&trailer), grpc.Peer(&from), grpc.OnFinish(func(error) { finished++ }))
		items, err := all(stream)
		if !slices.Equal(items, abc) || !isEOF(err) || from.Addr == nil || finished != 1 {
			t.Errorf("%v, %v, peer %v, finished %d times", items, err, from.Addr, finished)
		}
		wantNode(t, header, trailer, "2")
		md, _ := stream.Header()
		wantNode(t, md, stream.Trailer(), "2")
		wantCalls(t, b, 2)
	})
}

func TestBehaviour30HeaderFailureIsRetried(t *testing.T) {
	bubble(t, func(t *testing.T) {
		// Without metadata of the first: with headers it would be committed.
		b, inner := &backend{acts: []act{{items: abc}}}, &streamTap{open: func(n int) error {
			if n == 1 {
				return errDown
			}
			return nil
		}}
		stream := open(t.Context(), t, dial(t, b, opening(transient, retry)(t), inner.dialOption()), serverDesc)
		if md, err := stream.Header(); node(md) != "1" || err != nil || len(inner.options) != 2 {
			t.Error(md, err, len(inner.options))
		}
		if items, err := all(stream); !slices.Equal(items, abc) || !isEOF(err) {
			t.Error(items, err)
		}
	})
}

func TestBehaviour31NoRetryAfterTheFirstItem(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{items: []string{"a"}, err: errDown}}}
		stream := open(t.Context(), t, dial(t, b, opening(transient, retry)(t)), serverDesc)
		items, err := all(stream)
		if !slices.Equal(items, []string{"a"}) {
			t.Error(items)
		}
		wantCode(t, err, codes.Unavailable)
		wantCalls(t, b, 1)
	})
}

func TestBehaviour32HeadersCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{header: ms, takes: 10 * ms, err: errDown}}}
		stream := open(t.Context(), t, dial(t, b, opening(transient, retry)(t)), serverDesc)
		if md, err := stream.Header(); node(md) != "1" || err != nil {
			t.Error(md, err)
		}
		_, err := receive(stream)
		wantCode(t, err, codes.Unavailable)
		wantCalls(t, b, 1)
	})
}

func TestBehaviour33HeaderDuringTheFirstRead(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{header: 10 * ms, takes: 50 * ms, items: abc}}}
		stream := open(t.Context(), t, dial(t, b, opening(transient, retry)(t)), serverDesc)
		first, began := readSoon(stream), time.Now()
		synctest.Wait()
		md, err := stream.Header()
		if took := time.Since(began); node(md) != "1" || err != nil || took != 10*ms {
			t.Error(md, err, took)
		}
		<-first.done
		if first.item != "a" || first.err != nil {
			t.Error(first.item, first.err)
		}
		wantCalls(t, b, 1)
		if items, err := all(stream); len(items) != 2 || !isEOF(err) {
			t.Error(items, err)
		}

		// Asked for before there is anything to ask: an attempt to come answers.
		b = &backend{acts: []act{{takes: 10 * ms, node: "-", err: errDown}, {header: 10 * ms, takes: 50 * ms, items: abc}}}
		stream = open(t.Context(), t, dial(t, b, opening(transient, retry)(t)), serverDesc)
		first, began = readSoon(stream), time.Now()
		synctest.Wait()
		md, err = stream.Header()
		if took := time.Since(began); node(md) != "2" || err != nil || took != 21*ms {
			t.Error(md, err, took)
		}
		<-first.done
		wantCalls(t, b, 2)
		_, _ = all(stream)

		// Headers that are seen when their attempt has failed commit nothing.
		b = &backend{acts: []act{{header: ms, takes: 4 * ms, err: errDown}, {header: ms, takes: 100 * ms, items: abc}}}
		inner := &streamTap{header: 10 * ms}
		stream = open(t.Context(), t, dial(t, b, opening(transient, retry)(t), inner.dialOption()), serverDesc)
		first = readSoon(stream)
		synctest.Wait()
		if md, err = stream.Header(); node(md) != "2" || err != nil {
			t.Error(md, err)
		}
		<-first.done
		if first.item != "a" || first.err != nil {
			t.Error(first.item, first.err)
		}
		_, _ = all(stream)
	})
}

func TestBehaviour34CommittedAttemptEndsTheOpening(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, layer := range map[string]shield.Layer{
			"retry": retry, "against the server's wish": shield.Retry{IgnorePushback: true}, "hedge": shield.Hedge{Delay: hour},
		} {
			b := &backend{acts: []act{{header: 10 * ms, takes: 50 * ms, err: errDown}}}
			stream := open(t.Context(), t, dial(t, b, opening(transient, layer)(t)), serverDesc)
			first, began := readSoon(stream), time.Now()
			synctest.Wait()
			if md, err := stream.Header(); node(md) != "1" || err != nil {
				t.Error(md, err)
			}
			<-first.done
			wantCode(t, first.err, codes.Unavailable)
			wantCalls(t, b, 1)
			_, again := receive(stream)
			if took := time.Since(began); took != 60*ms || again != first.err || node(stream.Trailer()) != "1" { //nolint:errorlint // the very error
				t.Errorf("%s: %v, %v, %v", name, took, again, stream.Trailer())
			}
		}
	})
}

func TestBehaviour35NoHedgeAfterTheCommit(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, fails := range []error{nil, errDown} {
			a := act{header: 10 * ms, takes: 100 * ms, items: abc}
			if fails != nil {
				a = act{header: 10 * ms, takes: 100 * ms, err: fails}
			}
			b := &backend{acts: []act{a}}
			stream := open(t.Context(), t, dial(t, b, opening(transient, shield.Hedge{Max: 5, Delay: 30 * ms})(t)), serverDesc)
			first, began := readSoon(stream), time.Now()
			synctest.Wait()
			if md, err := stream.Header(); node(md) != "1" || err != nil {
				t.Error(md, err)
			}
			<-first.done
			wantCode(t, first.err, status.Code(fails))
			if took := time.Since(began); took != 110*ms {
				t.Error(took)
			}
			wantCalls(t, b, 1)
			_, _ = all(stream)
		}
		// One that is under way already is cancelled, and the committed one goes on.
		b := &backend{acts: []act{{header: 50 * ms, takes: 500 * ms, items: abc}, {takes: hour}}}
		stream := open(t.Context(), t, dial(t, b, opening(transient, shield.Hedge{Delay: 10 * ms})(t)), serverDesc)
		first := readSoon(stream)
		synctest.Wait()
		if md, err := stream.Header(); node(md) != "1" || err != nil {
			t.Error(md, err)
		}
		synctest.Wait()
		if b.cancelled.Load() != 1 {
			t.Error("the attempt beside it goes on")
		}
		<-first.done
		if items, err := all(stream); first.item != "a" || len(items) != 2 || !isEOF(err) {
			t.Error(first.item, first.err, items, err)
		}
		wantCalls(t, b, 2)
	})
}

func TestBehaviour36HedgesOfAStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: hour}, {takes: 5 * ms, items: abc, gap: 50 * ms}}}
		lost := 0
		inner := &streamTap{read: func(_ int, err error) error { lost++; return err }}
		stream := open(t.Context(), t, dial(t, b, opening(transient, shield.Hedge{Max: 3, Delay: 10 * ms})(t), inner.dialOption()), serverDesc)
		began := time.Now()
		if item, err := receive(stream); item != "a" || err != nil || time.Since(began) != 15*ms || lost != 1 {
			t.Error(item, err, time.Since(began), lost)
		}
		synctest.Wait()
		if b.cancelled.Load() != 1 {
			t.Error("the loser's handler goes on")
		}
		if items, err := all(stream); !slices.Equal(items, abc[1:]) || !isEOF(err) {
			t.Error(items, err)
		}
		md, _ := stream.Header()
		wantNode(t, md, stream.Trailer(), "2")
		wantCalls(t, b, 2)
	})
}

func TestBehaviour37RefusalShowsNoFailedAttempt(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}}}
		var header, trailer metadata.MD
		stream := open(t.Context(), t, dial(t, b, opening(transient, retry, shield.Breaker{Failures: 1})(t)), serverDesc, grpc.Header(&header), grpc.Trailer(&trailer))
		_, err := receive(stream)
		wantRefused(t, err, shield.BreakerOpen)
		wantCode(t, err, codes.Unavailable)
		wantNode(t, header, trailer, "")
		md, again := stream.Header()
		if md != nil || again != err || stream.Trailer() != nil { //nolint:errorlint // the very error
			t.Error(md, again, stream.Trailer())
		}
		wantCalls(t, b, 1)
	})
}

func TestBehaviour38SameErrorObjectOnStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}}}
		inner := &streamTap{read: func(int, error) error { return errDown }}
		var header, trailer metadata.MD
		stream := open(t.Context(), t, dial(t, b, opening(transient, shield.Retry{Max: 2})(t), inner.dialOption()), serverDesc, grpc.Header(&header), grpc.Trailer(&trailer))
		if _, err := receive(stream); err != errDown { //nolint:errorlint // the very error
			t.Error(err)
		}
		wantNode(t, header, trailer, "3")
		wantNode(t, header, stream.Trailer(), "3")
	})
}

func TestBehaviour39FailureWithoutStatus(t *testing.T) {
	bubble(t, func(t *testing.T) {
		inner := &streamTap{open: func(int) error { return errCause }}
		stream := open(t.Context(), t, dial(t, &backend{}, opening(transient, retry)(t), inner.dialOption()), serverDesc)
		_, err := receive(stream)
		s, _ := status.FromError(err)
		if err != errCause || s.Code() != codes.Unknown || s.Message() != errCause.Error() || stream.Trailer() != nil { //nolint:errorlint // the very error
			t.Error(err, s, stream.Trailer())
		}
	})
}

func TestBehaviour40DeadlineOfAStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		everything := shield.On(shield.Match("everything", func(context.Context, error) bool { return true }))
		for _, layer := range []shield.Layer{shield.Retry{Max: shield.Forever, Backoff: at(0)}, shield.Hedge{Delay: 50 * ms}} {
			b := &backend{acts: []act{{takes: hour}}}
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			began := time.Now()
			_, err := receive(open(ctx, t, dial(t, b, opening(everything, layer)(t)), serverDesc))
			cancel()
			wantCode(t, err, codes.DeadlineExceeded)
			if took := time.Since(began); took != 30*ms || timedOut(err) {
				t.Error(took, err)
			}
			wantCalls(t, b, 1)
		}
		// Noise after it, in the opening and later.
		for _, items := range [][]string{nil, abc[:1]} {
			b := &backend{acts: []act{{items: items, takes: ms, gap: hour}}}
			if items == nil {
				b.acts[0].takes = hour
			}
			inner := &streamTap{read: func(int, error) error { return errDown }}
			ctx, cancel := context.WithTimeout(t.Context(), 30*ms)
			_, err := all(open(ctx, t, dial(t, b, opening(transient, retry)(t), inner.dialOption()), serverDesc))
			cancel()
			wantCode(t, err, codes.DeadlineExceeded)
		}
	})
}

// A read has no ctx of its own in Go: the call's is the one.
func TestBehaviour41CancelOfAStream(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for name, c := range map[string]struct {
			after time.Duration
			act   act
			calls int32
		}{
			"before the first read": {0, act{items: abc}, 0},
			"in the first read":     {5 * ms, act{takes: hour}, 1},
			"in a later read":       {5 * ms, act{items: abc, gap: hour}, 1},
		} {
			for _, layer := range []shield.Layer{retry, shield.Hedge{}, shield.Timeout{After: time.Minute}} {
				b := &backend{acts: []act{c.act}}
				ctx, cancel := context.WithCancelCause(t.Context())
				stream := open(ctx, t, dial(t, b, grpcshield.Client{Open: build(t, layer), Stream: build(t, shield.Timeout{After: time.Minute})}), serverDesc)
				if c.after == 0 {
					cancel(errCause)
				} else {
					time.AfterFunc(c.after, func() { cancel(errCause) })
				}
				_, err := all(stream)
				wantCode(t, err, codes.Canceled)
				wantCalls(t, b, c.calls)
				if !errors.Is(err, errCause) || !errors.Is(err, context.Canceled) || timedOut(err) {
					t.Errorf("%s, %v: %v", name, layer, err)
				}
			}
		}
	})
}

// To dispose of a stream is to cancel its ctx, or to read it to the end.
func TestBehaviour42CancelReleases(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, read := range []int{0, 1} {
			b := &backend{acts: []act{{takes: 2 * ms, items: abc, gap: hour}}}
			if read == 0 {
				b.acts[0].takes = hour
			}
			ctx, cancel := context.WithCancel(t.Context())
			finished := 0
			stream := open(ctx, t, dial(t, b, opening(retry, shield.Timeout{After: time.Minute})(t)), serverDesc, grpc.OnFinish(func(error) { finished++ }))
			for range read {
				if _, err := receive(stream); err != nil {
					t.Error(err)
				}
			}
			p := readSoon(stream)
			time.Sleep(5 * ms)
			cancel()
			cancel()
			<-p.done
			wantCode(t, p.err, codes.Canceled)
			synctest.Wait()
			if b.cancelled.Load() != 1 || finished != 1 {
				t.Errorf("after %d reads: cancelled %d, finished %d times", read, b.cancelled.Load(), finished)
			}
		}
		// Partially read and let go.
		b := &backend{acts: []act{{items: abc, gap: hour}}}
		ctx, cancel := context.WithCancel(t.Context())
		if _, err := receive(open(ctx, t, dial(t, b, opening(shield.Hedge{})(t)), serverDesc)); err != nil {
			t.Error(err)
		}
		cancel()
		synctest.Wait()
		if b.cancelled.Load() != 1 {
			t.Error("the server goes on")
		}
	})
}

func TestBehaviour43MetadataAfterTheEnd(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, items := range [][]string{nil, abc} {
			b := &backend{acts: []act{{items: items}}}
			ctx, cancel := context.WithCancel(t.Context())
			var header, trailer metadata.MD
			finished := 0
			stream := open(ctx, t, dial(t, b, opening(transient, retry)(t)), serverDesc, grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(error) { finished++ }))
			if got, err := all(stream); !slices.Equal(got, items) || !isEOF(err) {
				t.Error(got, err)
			}
			for range 2 {
				md, err := stream.Header()
				wantNode(t, md, stream.Trailer(), "1")
				if _, again := receive(stream); !isEOF(again) || err != nil {
					t.Error(again, err)
				}
				cancel() // changes nothing
			}
			cancel()
			wantNode(t, header, trailer, "1")
			if finished != 1 {
				t.Errorf("finished %d times", finished)
			}
			if _, ok := peer.FromContext(stream.Context()); !ok {
				t.Error("no peer")
			}
		}
	})
}

func TestBehaviour44LaterReadsHaveTheirShield(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: 40 * ms, items: abc, gap: hour}}}
		s := build(t, shield.Timeout{After: 50 * ms})
		stream := open(t.Context(), t, dial(t, b, grpcshield.Client{Open: s, Stream: s}), serverDesc)
		items, err := all(stream)
		if len(items) != 1 || !timedOut(err) {
			t.Error(items, err)
		}
		synctest.Wait()
		if b.cancelled.Load() != 1 {
			t.Error("the server goes on")
		}
		if _, again := receive(stream); again != err { //nolint:errorlint // the very error
			t.Error(again)
		}
	})
}

func TestBehaviour45TimeoutIsNoTransportCancel(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, noise := range []error{status.Error(codes.Canceled, "rst"), errDown} {
			inner := &streamTap{read: func(int, error) error { return noise }}
			for _, items := range [][]string{nil, abc} {
				b := &backend{acts: []act{{items: items, gap: hour}}}
				if items == nil {
					b.acts[0].takes = hour
				}
				s := build(t, shield.Timeout{After: 50 * ms})
				_, err := all(open(t.Context(), t, dial(t, b, grpcshield.Client{Open: s, Stream: s}, inner.dialOption()), serverDesc))
				wantCode(t, err, codes.DeadlineExceeded)
				if !timedOut(err) {
					t.Errorf("%v: %v", noise, err)
				}
			}
		}
	})
}

func TestBehaviour46OpeningAndOperationsApart(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{err: errDown}, {takes: 80 * ms, items: abc, gap: 20 * ms}, {items: abc, gap: hour}}}
		c := grpcshield.Client{Open: build(t, transient, retry), Stream: build(t, shield.Timeout{After: 50 * ms})}
		cc := dial(t, b, c)
		if items, err := all(open(t.Context(), t, cc, serverDesc)); !slices.Equal(items, abc) || !isEOF(err) {
			t.Error(items, err)
		}
		wantCalls(t, b, 2)
		if items, err := all(open(t.Context(), t, cc, serverDesc)); len(items) != 1 || !timedOut(err) {
			t.Error(items, err)
		}
		wantCalls(t, b, 3)
	})
}

func TestBehaviour47LaterReadsAreBare(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{items: abc, gap: hour}}}
		stream := open(t.Context(), t, dial(t, b, opening(transient, retry, shield.Timeout{After: 50 * ms}, shield.Concurrency{Max: 1})(t)), serverDesc)
		if items, err := all(stream); !slices.Equal(items, abc) || !isEOF(err) {
			t.Error(items, err)
		}
		wantCalls(t, b, 1)
	})
}
