package p2c_test

import (
	"fmt"
	"testing"
	"time"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/p2c"
)

const ms = int64(time.Millisecond)

// fleet is a table of ready nodes on a virtual clock.
type fleet struct {
	nodes  []*selector.Node
	picker selector.Picker
	now    int64
}

func newFleet(weights ...int64) *fleet {
	f := &fleet{now: ms}
	for _, w := range weights {
		f.add(w)
	}
	return f
}

func (f *fleet) add(weight int64) *selector.Node {
	n := selector.NewNode(&selector.Instance{Address: fmt.Sprintf("node-%d:1", len(f.nodes)), Weight: weight}, f.now)
	n.SetReady(true)
	f.nodes = append(f.nodes, n)
	f.build()
	return n
}

func (f *fleet) build() {
	f.picker = p2c.Strategy().Build(append([]*selector.Node(nil), f.nodes...), f.picker)
}

// behaviour is how a node answers.
type behaviour struct {
	latency int64
	outcome selector.Outcome
}

// call makes one call after the other and returns the node that served it.
func (f *fleet) call(t *testing.T, how func(*selector.Node) behaviour) *selector.Node {
	t.Helper()
	n := f.picker.Pick(&selector.Request{Now: f.now})
	if n == nil {
		t.Fatal("Pick: no node")
	}
	began, b := f.now, how(n)
	n.Begin(began, selector.Unary)
	f.now += b.latency
	n.End(f.now, began, selector.Unary, b.outcome)
	return n
}

func alike(latency int64) func(*selector.Node) behaviour {
	return func(*selector.Node) behaviour { return behaviour{latency: latency} }
}

// shares counts who serves count sequential calls.
func (f *fleet) shares(t *testing.T, count int, how func(*selector.Node) behaviour) map[*selector.Node]int {
	t.Helper()
	got := make(map[*selector.Node]int)
	for range count {
		got[f.call(t, how)]++
	}
	return got
}

func within(t *testing.T, what string, got, low, high int) {
	t.Helper()
	if got < low || got > high {
		t.Errorf("%s: got %d, want %d to %d", what, got, low, high)
	}
}

func TestSharesFollowWeights(t *testing.T) {
	tests := []struct {
		name    string
		weights []int64
	}{
		{"two equal", []int64{100, 100}},
		{"two to one", []int64{200, 100}},
		{"one of three double", []int64{200, 100, 100}},
		{"ten nodes", []int64{100, 100, 100, 100, 100, 100, 100, 100, 100, 300}},
		{"heavy and light", []int64{1, 9}},
		{"drained", []int64{100, 0, 100}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			f := newFleet(tt.weights...)
			f.shares(t, 400*len(f.nodes), alike(5*ms)) // past the slow start
			const calls = 20000
			got := f.shares(t, calls, alike(5*ms))
			total := int64(0)
			for _, w := range tt.weights {
				total += w
			}
			for i, n := range f.nodes {
				want := int(calls * tt.weights[i] / total)
				within(t, fmt.Sprintf("node %d", i), got[n], want*9/10, want*11/10)
			}
		})
	}
}

// A fast first answer must not decide for ever: sequential calls over two nodes split 997:4.
func TestTwoNodesDoNotStarve(t *testing.T) {
	f := newFleet(100, 100)
	got := f.shares(t, 1000, func(n *selector.Node) behaviour {
		if n == f.nodes[0] {
			return behaviour{latency: ms}
		}
		return behaviour{latency: ms + ms/10}
	})
	within(t, "the slightly slower node", got[f.nodes[1]], 300, 600)
}

func TestSlowNodeGetsLittleAndComesBack(t *testing.T) {
	f := newFleet(100, 100, 100)
	slow := 100 * ms
	how := func(n *selector.Node) behaviour {
		if n == f.nodes[0] {
			return behaviour{latency: slow}
		}
		return behaviour{latency: 2 * ms}
	}
	f.shares(t, 500, how)
	within(t, "slow node", f.shares(t, 3000, how)[f.nodes[0]], 1, 60)
	slow = 2 * ms // 3 s on the clock are 1500 calls
	f.shares(t, 2500, how)
	within(t, "recovered node", f.shares(t, 3000, how)[f.nodes[0]], 800, 1200)
}

func TestStaleNodeIsTriedOnceASecond(t *testing.T) {
	f := newFleet(100, 100)
	dead := func(n *selector.Node) behaviour {
		if n == f.nodes[0] {
			return behaviour{latency: ms / 10, outcome: selector.Failure}
		}
		return behaviour{latency: 5 * ms}
	}
	f.shares(t, 500, dead)
	start := f.now
	got := f.shares(t, 4000, dead)[f.nodes[0]]
	seconds := int((f.now - start) / int64(time.Second))
	within(t, fmt.Sprintf("calls to the dead node in %d s", seconds), got, seconds/2, seconds*3)
}

// After an outage of all nodes the first to recover keeps the others away until
// they are stale, not longer.
func TestCommonOutageIsSoonOver(t *testing.T) {
	for range 50 {
		f := newFleet(100, 100)
		f.shares(t, 100, func(*selector.Node) behaviour { return behaviour{latency: ms, outcome: selector.Failure} })
		f.shares(t, 1300, alike(ms))
		within(t, "picks of a among 200", f.shares(t, 200, alike(ms))[f.nodes[0]], 60, 140)
	}
}

// Equal nodes share more evenly than by chance.
func TestEqualNodesTakeTurns(t *testing.T) {
	f := newFleet(100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
	f.shares(t, 500, alike(ms))
	const rounds = 30
	squares := 0
	for range rounds {
		got := f.shares(t, 1000, alike(ms))
		for _, n := range f.nodes {
			squares += (got[n] - 100) * (got[n] - 100)
		}
	}
	within(t, "sum of squared deviations a round, 900 by chance", squares/rounds, 0, 650)
}

// Whoever has not answered yet is not fast.
func TestUnknownLatencyIsNotLow(t *testing.T) {
	f := newFleet(100, 100)
	f.shares(t, 200, alike(50*ms))
	fresh := f.add(100)
	got := 0
	const picks = 6000
	for range picks {
		if f.picker.Pick(&selector.Request{Now: f.now}) == fresh {
			got++
		}
	}
	// Half trusted, it loses three of four comparisons that it is drawn for.
	within(t, "picks of the new node before its first answer", got, picks/3/8, picks/3/2)
}

func TestAbandonedStreamsDoNotStarve(t *testing.T) {
	f := newFleet(100, 100)
	f.shares(t, 100, alike(5*ms))
	for range 1000 {
		f.nodes[0].Begin(f.now, selector.Stream)
	}
	got := f.shares(t, 2000, alike(5*ms))
	within(t, "node with 1000 open streams", got[f.nodes[0]], 500, 1000)
}

func TestStreamsSpreadOverNodes(t *testing.T) {
	f := newFleet(100, 100, 100)
	for range 3000 {
		f.picker.Pick(&selector.Request{Now: f.now}).Begin(f.now, selector.Stream)
	}
	for i, n := range f.nodes {
		within(t, fmt.Sprintf("open streams of node %d", i), int(n.OpenStreams()), 900, 1100)
	}
}
