package grpcshield_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/resolver"
	"google.golang.org/grpc/resolver/manual"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

func TestClientReportsAllFaults(t *testing.T) {
	t.Parallel()
	methods, err := shield.NewPartitions(shield.PartitionConfig[string]{Build: func(context.Context, string) (*shield.Shield, error) { return nil, errCause }})
	if err != nil {
		t.Fatal(err)
	}
	_, err = grpcshield.Dial(grpcshield.Client{Unary: build(t), ByMethod: methods, Stream: build(t, shield.Hedge{})})
	for _, want := range []string{"Unary and ByMethod", "Client.Stream", "Hedge(1, each 1s)"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v: nothing of %q", err, want)
		}
	}
}

func TestShieldForEachMethod(t *testing.T) {
	bubble(t, func(t *testing.T) {
		var built []string
		methods, err := shield.NewPartitions(shield.PartitionConfig[string]{Build: func(_ context.Context, method string) (*shield.Shield, error) {
			built = append(built, method)
			if method == bidiMethod {
				return nil, errCause
			}
			return shield.New(method, transient, shield.Retry{Max: 1, Backoff: at(0)}, shield.Breaker{Failures: 2})
		}})
		if err != nil {
			t.Fatal(err)
		}
		b := &backend{acts: []act{{err: errDown}}}
		cc := dial(t, b, grpcshield.Client{ByMethod: methods})
		for range 2 {
			_, err = call(t.Context(), cc)
		}
		wantRefused(t, err, shield.BreakerOpen)
		wantCalls(t, b, 2)
		_, err = receive(open(t.Context(), t, cc, serverDesc))
		wantCode(t, err, codes.Unavailable)
		wantCalls(t, b, 4)
		if _, err = tryOpen(t.Context(), cc, bidiDesc); !errors.Is(err, errCause) {
			t.Error(err)
		}
		if want := []string{unaryMethod, serverMethod, bidiMethod}; !slices.Equal(built, want) {
			t.Error(built)
		}
	})
}

// Shields for one kind of calls leave the others alone.
func TestCallsWithoutShield(t *testing.T) {
	bubble(t, func(t *testing.T) {
		refusing := build(t, shield.Breaker{})
		if err := refusing.Isolate("test"); err != nil {
			t.Fatal(err)
		}
		cc := dial(t, &backend{acts: []act{{items: abc}}}, grpcshield.Client{Open: refusing})
		if _, err := call(t.Context(), cc); err != nil {
			t.Error(err)
		}
		_, err := all(open(t.Context(), t, cc, serverDesc))
		wantRefused(t, err, shield.Isolated)
		cc = dial(t, &backend{acts: []act{{items: abc}}}, grpcshield.Client{Stream: refusing})
		if _, err := call(t.Context(), cc); err != nil {
			t.Error(err)
		}
		for _, desc := range []*grpc.StreamDesc{serverDesc, clientDesc, bidiDesc} {
			stream, err := tryOpen(t.Context(), cc, desc)
			if err == nil {
				_, err = all(stream)
			}
			wantRefused(t, err, shield.Isolated)
		}
	})
}

const channelRetry = `{"methodConfig": [{"name": [{"service": "test.Echo"}], "retryPolicy": {
	"maxAttempts": 4, "initialBackoff": "0.001s", "maxBackoff": "0.001s", "backoffMultiplier": 1, "retryableStatusCodes": ["UNAVAILABLE"]}}]}`

// guarded dials as somebody else does, with our interceptors.
func guarded(t *testing.T, b *backend, c grpcshield.Client, more ...grpc.DialOption) []grpc.DialOption {
	t.Helper()
	unary, err := grpcshield.UnaryInterceptor(c)
	if err != nil {
		t.Fatal(err)
	}
	stream, err := grpcshield.StreamInterceptor(c)
	if err != nil {
		t.Fatal(err)
	}
	return append(append(start(t, b), grpc.WithUnaryInterceptor(unary), grpc.WithStreamInterceptor(stream)), more...)
}

func TestTwoOwnersOfRetries(t *testing.T) {
	bubble(t, func(t *testing.T) {
		config := grpc.WithDefaultServiceConfig(channelRetry)
		once, twice := build(t, shield.Breaker{Failures: 100}), build(t, transient, shield.Retry{Max: 1, Backoff: at(0)})
		failing := func() *backend { return &backend{acts: []act{{node: "-", err: errDown}}} }
		for name, c := range map[string]struct {
			client  grpcshield.Client
			options []grpc.DialOption
			foreign bool // dialled by somebody else
			calls   int32
		}{
			"both":              {grpcshield.Client{Unary: twice}, []grpc.DialOption{config}, true, 0},
			"no policy":         {grpcshield.Client{Unary: twice}, nil, true, 2},
			"shield of one":     {grpcshield.Client{Unary: once}, []grpc.DialOption{config}, true, 4},
			"both wanted":       {grpcshield.Client{Unary: twice, AllowChannelRetry: true}, []grpc.DialOption{config}, true, 8},
			"Dial":              {grpcshield.Client{Unary: twice}, []grpc.DialOption{config}, false, 2},
			"Dial, both wanted": {grpcshield.Client{Unary: twice, AllowChannelRetry: true}, []grpc.DialOption{config}, false, 8},
		} {
			for i := range 2 {
				b := failing()
				var cc *grpc.ClientConn
				if c.foreign {
					cc = connect(t, guarded(t, b, c.client, c.options...))
				} else {
					cc = dial(t, b, c.client, c.options...)
				}
				_, err := call(t.Context(), cc)
				if i == 1 {
					var stream grpc.ClientStream
					if stream, err = tryOpen(t.Context(), cc, serverDesc); err == nil {
						_, err = receive(stream)
					}
				}
				if c.calls > 0 {
					wantCode(t, err, codes.Unavailable)
					if got := b.calls.Load(); got != c.calls*int32(i+1) {
						t.Errorf("%s: %d calls", name, got)
					}
					continue
				}
				wantCode(t, err, codes.FailedPrecondition)
				wantCalls(t, b, 0)
				for _, want := range []string{`shield "test"`, "retryPolicy", "AllowChannelRetry"} {
					if !strings.Contains(fmt.Sprint(err), want) {
						t.Errorf("%s: %v: nothing of %q", name, err, want)
					}
				}
			}
		}
	})
}

// A policy that comes between two attempts.
func TestTwoOwnersBetweenAttempts(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := build(t, shield.Retry{Backoff: at(100 * ms)})
		for _, desc := range []*grpc.StreamDesc{nil, serverDesc} {
			b := &backend{acts: []act{{node: "-", err: errDown}}}
			names := manual.NewBuilderWithScheme("names")
			names.InitialState(resolver.State{Addresses: []resolver.Address{{Addr: "test"}}})
			cc, err := grpc.NewClient("names:///test", guarded(t, b, grpcshield.Client{Unary: s}, grpc.WithResolvers(names))...)
			if err != nil {
				t.Fatal(err)
			}
			time.AfterFunc(150*ms, func() {
				names.UpdateState(resolver.State{Addresses: []resolver.Address{{Addr: "test"}}, ServiceConfig: names.CC().ParseServiceConfig(channelRetry)})
			})
			began := time.Now()
			if desc == nil {
				_, err = call(t.Context(), cc)
			} else {
				_, err = receive(open(t.Context(), t, cc, desc))
			}
			wantCode(t, err, codes.FailedPrecondition)
			wantCalls(t, b, 2)
			if took := time.Since(began); took != 200*ms {
				t.Error(took)
			}
			cc.Close()
		}
	})
}

// The policy comes with the resolver's first answer: calls before it wait.
func TestTwoOwnersWhenTheResolverIsLate(t *testing.T) {
	bubble(t, func(t *testing.T) {
		s := build(t, transient, shield.Retry{Max: 1, Backoff: at(0)})
		for _, config := range []string{channelRetry, `{}`} {
			b := &backend{}
			late := manual.NewBuilderWithScheme("late")
			cc, err := grpc.NewClient("late:///test", guarded(t, b, grpcshield.Client{Unary: s}, grpc.WithResolvers(late))...)
			if err != nil {
				t.Fatal(err)
			}
			defer cc.Close()
			time.AfterFunc(100*ms, func() {
				late.UpdateState(resolver.State{
					Addresses: []resolver.Address{{Addr: "test"}}, ServiceConfig: late.CC().ParseServiceConfig(config),
				})
			})
			began := time.Now()
			_, err = call(t.Context(), cc)
			if time.Since(began) != 100*ms {
				t.Error(time.Since(began))
			}
			want := codes.OK
			if config == channelRetry {
				want = codes.FailedPrecondition
			}
			wantCode(t, err, want)

			// A caller that does not wait so long, and a connection that is closed.
			never := manual.NewBuilderWithScheme("never")
			cc, err = grpc.NewClient("never:///test", guarded(t, b, grpcshield.Client{Unary: s}, grpc.WithResolvers(never))...)
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
			_, err = call(ctx, cc)
			cancel()
			wantCode(t, err, codes.DeadlineExceeded)
			cc.Close()
			_, err = call(t.Context(), cc)
			wantCode(t, err, codes.Canceled)
		}
	})
}

func TestRefusalsHaveCodes(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for layer, want := range map[shield.Layer]codes.Code{
			shield.Rate{Permits: 1}:                            codes.ResourceExhausted,
			shield.Concurrency{Max: 1}:                         codes.ResourceExhausted,
			shield.Concurrency{Max: 1, Queue: 1, QueueFor: ms}: codes.ResourceExhausted,
		} {
			b := &backend{acts: []act{{takes: 50 * ms}}}
			cc := dial(t, b, grpcshield.Client{Unary: build(t, layer)})
			done := make(chan struct{})
			go func() {
				defer close(done)
				_, _ = call(t.Context(), cc)
			}()
			synctest.Wait()
			_, err := call(t.Context(), cc)
			wantCode(t, err, want)
			var refused *shield.Rejected
			if !errors.As(err, &refused) || refused.Shield != "test" || !strings.HasPrefix(err.Error(), "rpc error: code = ResourceExhausted desc = shield test: ") {
				t.Errorf("%v: %v", layer, err)
			}
			<-done
			wantCalls(t, b, 1)
		}
	})
}

// Waiting for a permit, the caller's end is the caller's.
func TestEndWhileWaitingInALayer(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{takes: hour}}}
		cc := dial(t, b, grpcshield.Client{Unary: build(t, shield.Concurrency{Max: 1, Queue: 9})})
		first, stop := context.WithCancel(t.Context())
		done := make(chan struct{})
		go func() {
			defer close(done)
			_, _ = call(first, cc)
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 10*ms)
		_, err := call(ctx, cc)
		cancel()
		wantCode(t, err, codes.DeadlineExceeded)
		if !errors.Is(err, context.DeadlineExceeded) || timedOut(err) {
			t.Error(err)
		}
		cancelled, giveUp := context.WithCancelCause(t.Context())
		time.AfterFunc(10*ms, func() { giveUp(errCause) })
		_, err = call(cancelled, cc)
		wantCode(t, err, codes.Canceled)
		if !errors.Is(err, errCause) || !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
		stop()
		<-done
		wantCalls(t, b, 1)
	})
}

func TestFallbackReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		fallback := wrapperspb.String("cached")
		for name, layers := range map[string][]shield.Layer{
			"one attempt": {shield.Fallback(fallback)},
			"retry":       {shield.Fallback(fallback), shield.On(grpcshield.Transient), shield.Retry{Max: 1, Backoff: at(0)}},
			"hedge":       {shield.Fallback(fallback), shield.On(grpcshield.Transient), shield.Hedge{Delay: shield.OnFailure}},
		} {
			cc := dial(t, &backend{acts: []act{{err: errDown}}}, grpcshield.Client{Unary: build(t, layers...)})
			var header, trailer metadata.MD
			reply, err := call(t.Context(), cc, grpc.Header(&header), grpc.Trailer(&trailer))
			if reply != "cached" || err != nil {
				t.Errorf("%s: %q, %v", name, reply, err)
			}
			wantNode(t, header, trailer, "")
		}
		if fallback.GetValue() != "cached" {
			t.Error("the fallback has changed")
		}
		cc := dial(t, &backend{acts: []act{{err: errDown}}}, grpcshield.Client{Unary: build(t, shield.Fallback(wrapperspb.Int32(1)))})
		_, err := call(t.Context(), cc)
		wantCode(t, err, codes.Internal)
	})
}

func TestClausesSeeReplies(t *testing.T) {
	bubble(t, func(t *testing.T) {
		early := shield.On(shield.OnReply("early", func(_ context.Context, m *wrapperspb.StringValue) bool { return m.GetValue() != "3" }))
		for _, layer := range []shield.Layer{shield.Retry{Max: 5, Backoff: at(0)}, shield.Hedge{Max: 5, Delay: shield.OnFailure}} {
			b := &backend{}
			var header, trailer metadata.MD
			reply, err := call(t.Context(), dial(t, b, grpcshield.Client{Unary: build(t, early, layer)}), grpc.Header(&header), grpc.Trailer(&trailer))
			if reply != "3" || err != nil {
				t.Errorf("%v: %q, %v", layer, reply, err)
			}
			wantNode(t, header, trailer, "3")
		}
	})
}

// text is a reply that is no proto message, for a codec of one's own.
type text struct{ value string }

type textCodec struct{}

func (textCodec) Name() string { return "text" }

func (textCodec) Marshal(v any) ([]byte, error) {
	m, ok := v.(proto.Message)
	if !ok {
		return nil, errors.ErrUnsupported
	}
	return proto.Marshal(m)
}

func (textCodec) Unmarshal(data []byte, v any) error {
	into, ok := v.(*text)
	if !ok {
		return errors.ErrUnsupported
	}
	var m wrapperspb.StringValue
	err := proto.Unmarshal(data, &m)
	into.value = m.GetValue()
	return err
}

func TestReplyThatIsNoMessage(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for layer, want := range map[shield.Layer]codes.Code{shield.Breaker{}: codes.OK, shield.Retry{}: codes.OK, shield.Hedge{}: codes.Internal} {
			b := &backend{acts: []act{{items: abc}}}
			cc := dial(t, b, grpcshield.Client{Unary: build(t, layer)}, grpc.WithDefaultCallOptions(grpc.ForceCodec(textCodec{})))
			var reply text
			finished := 0
			err := cc.Invoke(t.Context(), unaryMethod, wrapperspb.String("hello"), &reply, grpc.OnFinish(func(error) { finished++ }))
			wantCode(t, err, want)
			if finished != 1 {
				t.Errorf("%v: finished %d times", layer, finished)
			}
			if want == codes.OK && reply.value != "1" || want != codes.OK && !strings.Contains(fmt.Sprint(err), "*grpcshield_test.text") {
				t.Errorf("%v: %q, %v", layer, reply.value, err)
			}
			stream := open(t.Context(), t, cc, serverDesc)
			for i := range abc {
				err = stream.RecvMsg(&reply)
				wantCode(t, err, want)
				if want == codes.OK && reply.value != abc[i] {
					t.Error(reply.value)
				}
			}
			if want == codes.OK {
				if err := stream.RecvMsg(&reply); !isEOF(err) {
					t.Error(err)
				}
			}
		}
	})
}

// A reply that an attempt wrote before it was discarded is not left in the
// caller's message.
func TestFailureAfterADiscardedReply(t *testing.T) {
	bubble(t, func(t *testing.T) {
		anything := shield.On(shield.Any(nil, shield.OnReply("any", func(context.Context, *wrapperspb.StringValue) bool { return true })))
		b := &backend{acts: []act{{}, {err: errDown}}}
		reply, err := call(t.Context(), dial(t, b, grpcshield.Client{Unary: build(t, anything, shield.Retry{Max: 1, Backoff: at(0)})}))
		wantCode(t, err, codes.Unavailable)
		if reply != "" {
			t.Error(reply)
		}
	})
}

// A panic of a layer goes through, and leaves nothing behind: see bubble.
func TestPanicGoesThrough(t *testing.T) {
	bubble(t, func(t *testing.T) {
		broken := shield.On(shield.Match("broken", func(context.Context, error) bool { panic("broken") }))
		for _, layer := range []shield.Layer{shield.Retry{}, shield.Hedge{Delay: ms}} {
			b := &backend{acts: []act{{takes: 5 * ms, err: errDown}, {takes: hour}}}
			cc := dial(t, b, grpcshield.Client{Unary: build(t, broken, layer)})
			stream := open(t.Context(), t, cc, serverDesc)
			for _, run := range []func(){
				func() { _, _ = call(t.Context(), cc) },
				func() { _, _ = receive(stream) },
			} {
				b.calls.Store(0)
				func() {
					defer func() {
						if got := recover(); got != "broken" {
							t.Errorf("%v: recovered %v", layer, got)
						}
					}()
					run()
				}()
			}
			if _, err := receive(stream); status.Code(err) != codes.Internal {
				t.Error(err)
			}
		}
	})
}

// spoiling is a layer that makes failures of successes.
type spoiling struct{}

func (spoiling) Handle(ctx context.Context, next func(context.Context) error) error {
	return errors.Join(errCause, next(ctx))
}
func (spoiling) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1} }
func (spoiling) String() string        { return "Spoiling" }

// swallowing is a layer that makes successes of failures, and has no reply.
type swallowing struct{}

func (swallowing) Handle(ctx context.Context, next func(context.Context) error) error {
	_ = next(ctx)
	return nil
}
func (swallowing) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1} }
func (swallowing) String() string        { return "Swallowing" }

func TestSwallowedFailure(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layers := range [][]shield.Layer{{shield.Use(swallowing{}), shield.Retry{Max: 1}}, {shield.Use(swallowing{}), shield.Breaker{Failures: 1}, shield.Retry{Max: 1}}} {
			cc := dial(t, &backend{acts: []act{{err: errDown}}}, grpcshield.Client{Unary: build(t, layers...), Stream: build(t)})
			for range 2 {
				_, err := receive(open(t.Context(), t, cc, serverDesc))
				wantCode(t, err, codes.Internal)
				_, err = call(t.Context(), cc)
				wantCode(t, err, codes.Internal)
			}
		}
		inner := &streamTap{open: func(int) error { return errDown }}
		cc := dial(t, &backend{}, grpcshield.Client{Open: build(t, shield.Use(swallowing{}))}, inner.dialOption())
		_, err := tryOpen(t.Context(), cc, bidiDesc)
		wantCode(t, err, codes.Internal)
	})
}

// What a layer does not want is released as well.
func TestDiscardedSuccess(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{items: abc, gap: hour}}}
		cc := dial(t, b, grpcshield.Client{Unary: build(t, shield.Use(spoiling{}))})
		_, err := call(t.Context(), cc)
		_, streamErr := receive(open(t.Context(), t, cc, serverDesc))
		stream, openErr := tryOpen(t.Context(), cc, bidiDesc)
		synctest.Wait()
		if !errors.Is(err, errCause) || !errors.Is(streamErr, errCause) || !errors.Is(openErr, errCause) || stream != nil || b.cancelled.Load() != 2 {
			t.Error(err, streamErr, openErr, b.cancelled.Load())
		}
	})
}

// Misuse has an error and opens nothing.
func TestServerStreamOutOfOrder(t *testing.T) {
	bubble(t, func(t *testing.T) {
		b := &backend{acts: []act{{items: abc}}}
		cc := dial(t, b, grpcshield.Client{Open: build(t)})
		stream, err := cc.NewStream(t.Context(), serverDesc, serverMethod)
		if err != nil {
			t.Fatal(err)
		}
		_, err = receive(stream)
		wantCode(t, err, codes.Internal)
		_, err = stream.Header()
		wantCode(t, err, codes.Internal)
		if stream.Trailer() != nil || stream.Context() != t.Context() {
			t.Error("there is something before the opening")
		}
		send(t, stream, "one")
		wantCode(t, stream.SendMsg(wrapperspb.String("two")), codes.Internal)
		wantCalls(t, b, 0)
		if items, err := all(stream); !slices.Equal(items, abc) || !isEOF(err) {
			t.Error(items, err)
		}
		if got := b.requests(); !slices.Equal(got, []string{"one"}) {
			t.Error(got)
		}
	})
}

// A layer's values reach the RPC, its own end does not outlast the opening.
func TestValuesOfLayersReachStreams(t *testing.T) {
	bubble(t, func(t *testing.T) {
		c := grpcshield.Client{Open: build(t, shield.Use(tagging{}), shield.Timeout{After: 50 * ms})}
		for _, desc := range []*grpc.StreamDesc{serverDesc, bidiDesc} {
			b := &backend{acts: []act{{items: abc, gap: hour}}}
			ctx, cancel := context.WithTimeout(t.Context(), 24*hour)
			stream := open(ctx, t, dial(t, b, c), desc)
			if desc == bidiDesc {
				_ = stream.CloseSend()
			}
			if items, err := all(stream); !slices.Equal(items, abc) || !isEOF(err) {
				t.Error(items, err)
			}
			want, _ := ctx.Deadline()
			if got := b.metadata[0]["x-tag"]; !slices.Equal(got, []string{"tagged"}) || !b.deadlines[0].Equal(want) {
				t.Error(got, b.deadlines, want)
			}
			cancel()
		}
	})
}

type tagging struct{}

func (tagging) Handle(ctx context.Context, next func(context.Context) error) error {
	return next(metadata.AppendToOutgoingContext(ctx, "x-tag", "tagged"))
}

func (tagging) Traits() shield.Traits { return shield.Traits{MaxAttempts: 1, ReplacesContext: true} }
func (tagging) String() string        { return "Tagging" }

// Options given twice, by connection and call, all get the answer.
func TestOptionsGivenTwice(t *testing.T) {
	bubble(t, func(t *testing.T) {
		for _, layer := range []shield.Layer{shield.Breaker{}, shield.Retry{}, shield.Hedge{}} {
			cc := dial(t, &backend{acts: []act{{items: abc}}}, grpcshield.Client{Unary: build(t, layer)})
			for _, run := range []func(...grpc.CallOption){
				func(o ...grpc.CallOption) { _, _ = call(t.Context(), cc, o...) },
				func(o ...grpc.CallOption) { _, _ = all(open(t.Context(), t, cc, serverDesc, o...)) },
			} {
				var headers, trailers [2]metadata.MD
				var peers [2]peer.Peer
				finished := ""
				run(grpc.Header(&headers[0]), grpc.Trailer(&trailers[0]), grpc.Peer(&peers[0]), grpc.OnFinish(func(error) { finished += "a" }),
					grpc.WaitForReady(true),
					grpc.Header(&headers[1]), grpc.Trailer(&trailers[1]), grpc.Peer(&peers[1]), grpc.OnFinish(func(error) { finished += "b" }))
				headers[0].Set("x-node", "mine")
				trailers[0].Set("x-node", "mine")
				if node(headers[1]) == "" || node(headers[1]) == "mine" || node(trailers[1]) != node(headers[1]) || peers[0].Addr == nil || peers[1].Addr == nil || finished != "ab" {
					t.Errorf("%v: %v, %v, %v, %q", layer, headers, trailers, peers, finished)
				}
			}
		}
	})
}
