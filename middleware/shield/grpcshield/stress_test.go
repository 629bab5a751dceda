package grpcshield_test

import (
	"context"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/wrapperspb"

	"github.com/materpc/materpc/middleware/shield"
	"github.com/materpc/materpc/middleware/shield/grpcshield"
)

// chaotic acts, with all that a call can meet.
func chaotic(random *rand.Rand, n int) []act {
	some := func(most time.Duration) time.Duration { return time.Duration(random.Int64N(int64(most))) }
	acts := make([]act, n)
	for i := range acts {
		a := act{takes: some(20 * ms), gap: some(5 * ms), items: abc[:random.IntN(4)]}
		if random.IntN(2) == 0 {
			a.header = 1 + some(10*ms)
		}
		if random.IntN(3) == 0 {
			a.err = status.Error(codes.Code(random.IntN(17)), "chaos")
		}
		if random.IntN(4) == 0 {
			a.trailer = metadata.Pairs("grpc-retry-pushback-ms", []string{"0", "3", "-1"}[random.IntN(3)])
		}
		acts[i] = a
	}
	return acts
}

// Whatever happens, reply, header and trailer are of one attempt, streams are
// those of one attempt in their order, permits come back, and nothing is left.
func TestChaos(t *testing.T) {
	bubble(t, func(t *testing.T) {
		seed := rand.Uint64()
		random := rand.New(rand.NewPCG(seed, 0))
		defer func() {
			if t.Failed() {
				t.Logf("seed %d", seed)
			}
		}()
		limit, budget := shield.Concurrency{Max: 1000}, shield.NewShare(1, 10)
		s := build(t, transient,
			shield.Timeout{After: 80 * ms}, shield.Hedge{Max: 3, Delay: 5 * ms, Budget: budget},
			shield.Retry{Max: 2, Backoff: at(ms), Budget: budget}, limit, shield.Timeout{After: 15 * ms})
		ops := build(t, limit, shield.Timeout{After: 4 * ms})
		b := &backend{acts: chaotic(random, 20000)}
		cc := dial(t, b, grpcshield.Client{Unary: s, Stream: ops})
		var group sync.WaitGroup
		for range 50 {
			caller := rand.New(rand.NewPCG(random.Uint64(), 0))
			group.Go(func() {
				for range 20 {
					life := time.Duration(caller.Int64N(int64(100 * ms)))
					deadline := hour
					if caller.IntN(2) == 0 {
						deadline = life
					}
					ctx, cancel := context.WithTimeout(t.Context(), deadline)
					time.AfterFunc(life, cancel)
					switch caller.IntN(3) {
					case 0:
						chaoticUnary(ctx, t, cc)
					case 1:
						chaoticServerStream(ctx, t, cc, caller.IntN(2) == 0)
					default:
						chaoticBidi(ctx, t, cc)
					}
					cancel()
				}
			})
		}
		group.Wait()
		for _, state := range []shield.State{s.Snapshot(), ops.Snapshot()} {
			for _, layer := range state.Layers {
				if layer.InFlight != 0 {
					t.Errorf("%+v", layer)
				}
			}
		}
		if left := s.Snapshot().Layers[1].Tokens; left != 10 {
			t.Errorf("%v of the budget left", left)
		}
	})
}

func chaoticUnary(ctx context.Context, t *testing.T, cc *grpc.ClientConn) {
	var header, trailer metadata.MD
	finished := 0
	req := wrapperspb.String("hello")
	var message wrapperspb.StringValue
	err := cc.Invoke(ctx, unaryMethod, req, &message, grpc.Header(&header), grpc.Trailer(&trailer), grpc.OnFinish(func(error) { finished++ }))
	req.Value = "the caller's again" // the race detector tells if it is not
	reply := message.GetValue()
	if err == nil && (reply == "" || node(header) != reply || node(trailer) != reply) || finished != 1 || strings.Contains(node(header), ",") {
		t.Errorf("%q, %v: header %q, trailer %q, finished %d times", reply, err, node(header), node(trailer), finished)
	}
	if err != nil && reply != "" {
		t.Errorf("%q beside %v", reply, err)
	}
}

func chaoticServerStream(ctx context.Context, t *testing.T, cc *grpc.ClientConn, headers bool) {
	stream, err := tryOpen(ctx, cc, serverDesc)
	if err != nil {
		t.Error(err)
		return
	}
	var group sync.WaitGroup
	var header metadata.MD
	if headers {
		group.Go(func() { header, _ = stream.Header() })
	}
	items, err := all(stream)
	group.Wait()
	for i, item := range items {
		if item != abc[i] {
			t.Errorf("%v", items)
		}
	}
	again, _ := stream.Header()
	if header != nil && node(again) != node(header) {
		t.Errorf("headers of %q, then of %q", node(header), node(again))
	}
	if isEOF(err) && (node(stream.Trailer()) == "" || node(again) != node(stream.Trailer())) {
		t.Errorf("headers of %q, trailer of %q", node(again), node(stream.Trailer()))
	}
}

func chaoticBidi(ctx context.Context, t *testing.T, cc *grpc.ClientConn) {
	stream, err := tryOpen(ctx, cc, bidiDesc)
	if err != nil {
		return
	}
	var group sync.WaitGroup
	group.Go(func() {
		for _, text := range abc {
			if stream.SendMsg(wrapperspb.String(text)) != nil {
				return
			}
		}
		_ = stream.CloseSend()
	})
	_, err = all(stream)
	group.Wait()
	if err == nil {
		t.Error("no end")
	}
}
