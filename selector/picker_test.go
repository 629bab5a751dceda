package selector_test

import (
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/materpc/materpc/selector"
)

// Whatever is ready, drained, tried or filtered: a pick is allowed, and there
// is a pick as long as any node is.
func TestPickIsAllowedAndFound(t *testing.T) {
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			var picker selector.Picker
			for round := range 300 {
				rnd := rand.New(rand.NewPCG(uint64(round), 1))
				nodes := newNodes(1+rnd.IntN(40), func(int) int64 { return int64(rnd.IntN(5)) * 50 })
				picker = st.Build(nodes, picker)
				r := &selector.Request{Now: 2, Tried: &selector.Tried{}, Hash: rnd.Uint64(), HasHash: round%2 == 0}
				banned := nodes[rnd.IntN(len(nodes))]
				r.Filter = func(n *selector.Node) bool { return n != banned }
				for _, n := range nodes {
					n.SetReady(rnd.IntN(4) > 0)
				}
				for left := allowed(r, nodes); ; left-- {
					n := picker.Pick(r)
					if left == 0 {
						if n != nil {
							t.Fatalf("round %d: got %s, want no node", round, n.Instance().Address)
						}
						break
					}
					if n == nil || !r.Allows(n) {
						t.Fatalf("round %d: %d nodes are allowed, got %v", round, left, n)
					}
					r.Tried.Add(n)
				}
			}
		})
	}
}

func allowed(r *selector.Request, nodes []*selector.Node) (count int) {
	for _, n := range nodes {
		if r.Allows(n) {
			count++
		}
	}
	return count
}

func TestOnlyReadyNodeAmongManyIsFound(t *testing.T) {
	nodes := newNodes(10000, func(i int) int64 { return int64(1 + i%3*500) })
	for _, n := range nodes {
		n.SetReady(false)
	}
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			picker := st.Build(nodes, nil)
			for k := range 20 {
				only := nodes[(k*997+3)%len(nodes)]
				only.SetReady(true)
				if n := picker.Pick(&selector.Request{Hash: uint64(k), HasHash: k%2 == 0}); n != only {
					t.Fatalf("only %s is ready, got %v", only.Instance().Address, n)
				}
				only.SetReady(false)
			}
		})
	}
}

// With few nodes ready each still gets its share: none inherits that of a gap.
func TestSharesWithFewReady(t *testing.T) {
	nodes := newNodes(1000, equalWeight)
	for i, n := range nodes {
		n.SetReady(i == 0 || i == 1 || i == 2 || i == 500) // 1 and 2 have no gap before them
	}
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			picker := st.Build(nodes, nil)
			got := make(map[*selector.Node]int)
			for k := range 8000 {
				got[picker.Pick(&selector.Request{Hash: uint64(k), HasHash: true})]++
			}
			for _, k := range []int{0, 1, 2, 500} {
				within(t, fmt.Sprintf("picks of node %d", k), got[nodes[k]], 1500, 2500)
			}
		})
	}
}

func TestWeightZeroDrainsAtOnce(t *testing.T) {
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			nodes := newNodes(2, equalWeight)
			picker := st.Build(nodes, nil)
			nodes[0].Update(&selector.Instance{Address: nodes[0].Instance().Address, Weight: 0})
			for k := range 200 {
				if n := picker.Pick(&selector.Request{Hash: uint64(k), HasHash: true}); n != nodes[1] {
					t.Fatalf("pick %d: got %v, want the node that is not drained", k, n)
				}
			}
			nodes[1].Update(&selector.Instance{Address: "other", Weight: -5})
			if n := picker.Pick(&selector.Request{}); n != nil {
				t.Errorf("all drained: got %s, want none", n.Instance().Address)
			}
		})
	}
}

func TestPicksRaceWithChanges(t *testing.T) {
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			nodes := newNodes(20, equalWeight)
			pickers := make(chan selector.Picker, 1)
			pickers <- st.Build(nodes, nil)
			var all sync.WaitGroup
			for range 4 {
				all.Go(func() {
					for k := range 500 {
						picker := <-pickers
						pickers <- picker
						r := &selector.Request{Now: int64(k), Hash: uint64(k), HasHash: k%2 == 0, Tried: &selector.Tried{}}
						if n := picker.Pick(r); n != nil {
							n.Begin(r.Now, selector.Unary)
							r.Tried.Add(n)
							n.End(r.Now+1, r.Now, selector.Unary, selector.Outcome(k%3))
						}
					}
				})
			}
			for k := range 500 {
				n := nodes[k%len(nodes)]
				n.SetReady(k%3 > 0)
				n.Update(&selector.Instance{Address: n.Instance().Address, Weight: int64(k % 4 * 50)})
				old := <-pickers
				pickers <- st.Build(nodes[:1+k%len(nodes)], old)
			}
			all.Wait()
			for _, n := range nodes {
				if n.InFlight() != 0 {
					t.Errorf("in flight on %s: got %d, want 0", n.Instance().Address, n.InFlight())
				}
			}
		})
	}
}

func TestPickDoesNotAllocate(t *testing.T) {
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			nodes := newNodes(50, func(i int) int64 { return int64(50 + i) })
			picker := st.Build(nodes, nil)
			// The request is reused: given to an interface it lives on the heap.
			r := &selector.Request{Now: 1, Hash: 7, HasHash: true, Tried: &selector.Tried{}}
			if got := testing.AllocsPerRun(1000, func() {
				r.Tried.Add(nodes[0])
				n := picker.Pick(r)
				n.Begin(1, selector.Unary)
				n.End(2, 1, selector.Unary, selector.Success)
			}); got != 0 {
				t.Errorf("allocations per pick: got %v, want 0", got)
			}
		})
	}
}

func BenchmarkPick(b *testing.B) {
	for i, st := range strategies() {
		for _, size := range []int{10, 10000} {
			nodes := newNodes(size, func(i int) int64 { return int64(100 + i%3) })
			name := st.Name()
			if i == 4 {
				name += "-replicas"
			}
			b.Run(fmt.Sprintf("%s/%d", name, size), func(b *testing.B) {
				picker := st.Build(nodes, nil)
				r := &selector.Request{Now: 1, HasHash: true}
				b.ReportAllocs()
				for b.Loop() {
					r.Hash++
					picker.Pick(r)
				}
			})
			b.Run(fmt.Sprintf("%s/%d/statistics", name, size), func(b *testing.B) {
				picker := st.Build(nodes, nil)
				r := &selector.Request{Now: 1, HasHash: true}
				b.ReportAllocs()
				for b.Loop() {
					r.Hash++
					r.Now += 1000
					n := picker.Pick(r)
					n.Begin(r.Now, selector.Unary)
					n.End(r.Now+5_000_000, r.Now, selector.Unary, selector.Success)
				}
			})
		}
	}
}

// A push of 10,000 instances of which one changed.
func BenchmarkRebuild(b *testing.B) {
	for _, st := range strategies()[:4] {
		b.Run(st.Name()+"/10000", func(b *testing.B) {
			nodes := newNodes(10001, equalWeight)
			picker := st.Build(nodes[:10000], nil)
			list := append([]*selector.Node(nil), nodes[1:]...)
			for b.Loop() {
				st.Build(list, picker)
			}
		})
	}
}
