package selector_test

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"
	"weak"

	kselector "github.com/go-kratos/kratos/v2/selector"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/chash"
	"github.com/materpc/materpc/selector/p2c"
	"github.com/materpc/materpc/selector/random"
)

// parallel runs work count times, at most width at a time, in order of index.
func parallel(count, width int, work func(i int)) {
	var next atomic.Int64
	var all sync.WaitGroup
	for range width {
		all.Go(func() {
			for i := int(next.Add(1)) - 1; i < count; i = int(next.Add(1)) - 1 {
				work(i)
			}
		})
	}
	all.Wait()
}

func TestCaseB22RetryAvoidsTriedNodes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := p2c.New()
		s.Apply(kratosNodes("a", "b", "c"))
		var failed, repeated, lastOnA atomic.Int64
		parallel(300, 10, func(i int) {
			ctx := selector.NewTriedContext(t.Context(), &selector.Tried{})
			seen := make(map[string]bool)
			for attempt := range 4 {
				node, done := mustSelect(t, ctx, s)
				if seen[node] {
					repeated.Add(1)
				}
				seen[node] = true
				if node == "a" {
					if attempt == 0 && i >= 200 {
						lastOnA.Add(1)
					}
					time.Sleep(100 * time.Microsecond)
					done(ctx, kselector.DoneInfo{Err: status.Error(codes.Unavailable, "broken")})
					time.Sleep(time.Millisecond)
					continue
				}
				time.Sleep(20 * time.Millisecond)
				done(ctx, kselector.DoneInfo{})
				return
			}
			failed.Add(1)
		})
		within(t, "failed calls", int(failed.Load()), 0, 0)
		within(t, "attempts on an address tried before", int(repeated.Load()), 0, 0)
		within(t, "first attempts of the last 100 calls on the broken node", int(lastOnA.Load()), 0, 33)
	})
}

func TestCaseB29ReapplyKeepsRotation(t *testing.T) {
	for i, st := range strategies() {
		if st.Name() == chash.Name || st.Name() == random.Name {
			continue // have no rotation
		}
		t.Run(label(i, st), func(t *testing.T) {
			// In a bubble, since p2c listens to latencies and a busy machine has some.
			synctest.Test(t, func(t *testing.T) {
				reapply(t, st, "100")
				reapply(t, st, "101")
			})
		})
	}
}

// reapply applies 10 nodes before each of 1000 picks, the first one with weight
// 100 and toggled in turn.
func reapply(t *testing.T, st selector.Strategy, toggled string) {
	t.Helper()
	addresses := make([]string, 10)
	for k := range addresses {
		addresses[k] = fmt.Sprintf("node-%d", k)
	}
	s := selector.NewBuilder(st).Build()
	got := make(map[string]int)
	for k := range 1000 {
		nodes := kratosNodes(addresses...)
		if k%2 == 1 {
			nodes[0] = kratosNode(addresses[0], toggled)
		}
		s.Apply(nodes)
		node, done := mustSelect(t, t.Context(), s)
		time.Sleep(time.Millisecond)
		done(t.Context(), kselector.DoneInfo{})
		got[node]++
	}
	for _, a := range addresses {
		within(t, fmt.Sprintf("picks of %s, weight toggled to %s", a, toggled), got[a], 60, 140)
	}
}

func TestCaseB29NothingOfGoneNodesStays(t *testing.T) {
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			s := selector.NewBuilder(st).Build()
			var gone []weak.Pointer[selector.Node]
			for k := 0; k < 10000; k += 3 {
				s.Apply(kratosNodes(fmt.Sprint("x", k), fmt.Sprint("x", k+1), fmt.Sprint("x", k+2)))
				_, done := mustSelect(t, t.Context(), s)
				done(t.Context(), kselector.DoneInfo{})
				if k < 3000 {
					for _, n := range look(t, s) {
						gone = append(gone, weak.Make(n))
					}
				}
			}
			if got := len(look(t, s)); got != 3 {
				t.Errorf("nodes in the selector: got %d, want 3", got)
			}
			runtime.GC()
			kept := 0
			for _, p := range gone {
				if p.Value() != nil {
					kept++
				}
			}
			if kept > 0 {
				t.Errorf("%d of %d nodes that left are still in memory", kept, len(gone))
			}
			runtime.KeepAlive(s)
		})
	}
}

func TestCaseB30NewNodeStartsGently(t *testing.T) {
	const fleets = 10
	sum := 0
	for range fleets {
		synctest.Test(t, func(t *testing.T) { sum += firstCallsOnNewNode(t) })
	}
	// A fair share would be 25 of each 100, and a node that nothing holds back
	// gets at least that. One fleet may come near it by chance, ten do not.
	within(t, "calls of ten times the first 100 on the new node", sum, fleets*10, fleets*23)
}

// firstCallsOnNewNode adds a node to three warm ones and counts what it gets of
// the first 100 calls.
func firstCallsOnNewNode(t *testing.T) int {
	t.Helper()
	s := p2c.New()
	s.Apply(kratosNodes("a", "b", "c"))
	var onD atomic.Int64
	call := func() string {
		node, done := mustSelect(t, t.Context(), s)
		var err error
		if node == "d" {
			if onD.Add(1) > 10 {
				err = status.Error(codes.ResourceExhausted, "more than 10 at a time")
			}
			defer onD.Add(-1)
		}
		time.Sleep(20 * time.Millisecond)
		done(t.Context(), kselector.DoneInfo{Err: err})
		return node
	}
	parallel(600, 20, func(int) { call() })

	before := weights(look(t, s))
	s.Apply(kratosNodes("a", "b", "c", "d"))
	after := weights(look(t, s))
	for a, w := range before {
		if change := after[a]/w - 1; change > 0.01 || change < -0.01 {
			t.Errorf("weight of warm node %s: %v before Apply, %v after", a, w, after[a])
		}
	}
	var first, last atomic.Int64
	parallel(400, 20, func(i int) {
		if call() != "d" {
			return
		}
		if i < 100 {
			first.Add(1)
		}
		if i >= 200 {
			last.Add(1)
		}
	})
	within(t, "calls of the first 100 on the new node", int(first.Load()), 10, 40)
	within(t, "calls of the last 200 on the new node", int(last.Load()), 40, 60)
	return int(first.Load())
}

func weights(nodes map[string]*selector.Node) map[string]float64 {
	out := make(map[string]float64)
	for a, n := range nodes {
		out[a] = n.Stats().Effective()
	}
	return out
}

func TestCaseB31ErrorsAndWeight(t *testing.T) {
	tests := []struct {
		name      string
		err       error
		low, high float64 // weight relative to the baseline
	}{
		{"canceled", context.Canceled, 0.95, 1.05},
		{"wrapped canceled", fmt.Errorf("call: %w", context.Canceled), 0.95, 1.05},
		{"status canceled", status.Error(codes.Canceled, ""), 0.95, 1.05},
		{"not found", status.Error(codes.NotFound, ""), 0.95, 1.05},
		{"invalid argument", status.Error(codes.InvalidArgument, ""), 0.95, 1.05},
		{"bare deadline", context.DeadlineExceeded, 0, 0.5},
		{"wrapped deadline", fmt.Errorf("call: %w", context.DeadlineExceeded), 0, 0.5},
		{"status deadline", status.Error(codes.DeadlineExceeded, ""), 0, 0.5},
		{"wrapped status deadline", fmt.Errorf("call: %w", status.Error(codes.DeadlineExceeded, "")), 0, 0.5},
		{"status unavailable", status.Error(codes.Unavailable, ""), 0, 0.5},
		{"status internal", status.Error(codes.Internal, ""), 0, 0.5},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := p2c.New()
				s.Apply(kratosNodes("a"))
				run := func(err error) float64 {
					for range 50 {
						_, done := mustSelect(t, t.Context(), s)
						time.Sleep(20 * time.Millisecond)
						done(t.Context(), kselector.DoneInfo{Err: err})
					}
					return look(t, s)["a"].Stats().Effective()
				}
				base := run(nil)
				if got := run(tt.err) / base; got < tt.low || got > tt.high {
					t.Errorf("weight after 50 times %q: got %.3f of the baseline, want %.2f to %.2f", tt.err, got, tt.low, tt.high)
				}
			})
		})
	}
}

func TestCaseB32FewNodesAndDoubleDone(t *testing.T) {
	for i, st := range strategies() {
		for count := range 3 {
			t.Run(fmt.Sprintf("%s/%d nodes", label(i, st), count), func(t *testing.T) {
				s := selector.NewBuilder(st).Build()
				if _, _, err := s.Select(t.Context()); !kselectorNone(err) {
					t.Fatalf("Select before Apply: got %v, want ErrNoAvailable", err)
				}
				s.Apply(kratosNodes([]string{"a", "b"}[:count]...))
				if count == 0 {
					if _, _, err := s.Select(t.Context()); !kselectorNone(err) {
						t.Fatalf("Select among 0 nodes: got %v, want ErrNoAvailable", err)
					}
					return
				}
				seen := make(map[string]bool)
				for range 100 {
					node, done := mustSelect(t, t.Context(), s)
					seen[node] = true
					parallel(2, 2, func(int) { done(t.Context(), kselector.DoneInfo{}) })
				}
				if len(seen) != count {
					t.Errorf("nodes picked: got %v, want %d of them", seen, count)
				}
				for a, n := range look(t, s) {
					if n.InFlight() != 0 {
						t.Errorf("in flight on %s: got %d, want 0", a, n.InFlight())
					}
				}
			})
		}
	}
}

type streamKey struct{}

func TestCaseB73EachPickHasOneDone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		isStream := func(ctx context.Context) selector.Load {
			if ctx.Value(streamKey{}) != nil {
				return selector.Stream
			}
			return selector.Unary
		}
		s := selector.NewBuilder(p2c.Strategy(), selector.LoadFunc(isStream)).Build()
		s.Apply(kratosNodes("a", "b"))
		stream := context.WithValue(t.Context(), streamKey{}, true)
		rounds := []struct {
			ctx context.Context
			err error
		}{
			{stream, context.Canceled},                              // opened, cancelled without Recv
			{stream, status.Error(codes.Unavailable, "open fails")}, // never opened
			{t.Context(), nil},
		}
		for _, round := range rounds {
			parallel(100, 10, func(int) {
				_, done := mustSelect(t, round.ctx, s)
				time.Sleep(5 * time.Millisecond)
				done(round.ctx, kselector.DoneInfo{Err: round.err})
				done(round.ctx, kselector.DoneInfo{}) // grpc and a deferred Close may both report
			})
		}
		for a, n := range look(t, s) {
			if n.InFlight() != 0 || n.OpenStreams() != 0 {
				t.Errorf("%s: %d calls and %d streams left, want none", a, n.InFlight(), n.OpenStreams())
			}
		}
		got := make(map[string]int)
		for range 200 {
			node, done := mustSelect(t, t.Context(), s)
			time.Sleep(5 * time.Millisecond)
			done(t.Context(), kselector.DoneInfo{})
			got[node]++
		}
		within(t, "picks of a among the next 200", got["a"], 70, 130)
	})
}
