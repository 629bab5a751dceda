package wrr_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/wrr"
)

func node(name string, weight int64) *selector.Node {
	n := selector.NewNode(&selector.Instance{Address: name, Weight: weight}, 1)
	n.SetReady(true)
	return n
}

func nodes(weights ...int64) []*selector.Node {
	out := make([]*selector.Node, len(weights))
	for i, w := range weights {
		out[i] = node(fmt.Sprint("n", i), w)
	}
	return out
}

func picks(t *testing.T, p selector.Picker, count int) []*selector.Node {
	t.Helper()
	out := make([]*selector.Node, count)
	for i := range out {
		if out[i] = p.Pick(&selector.Request{}); out[i] == nil {
			t.Fatalf("pick %d: no node", i)
		}
	}
	return out
}

func count(picked []*selector.Node) map[*selector.Node]int {
	got := make(map[*selector.Node]int)
	for _, n := range picked {
		got[n]++
	}
	return got
}

func TestSharesAreExact(t *testing.T) {
	tests := []struct {
		weights []int64
		periods int
	}{
		{[]int64{1}, 10},
		{[]int64{100, 100, 100}, 10},
		{[]int64{10, 20}, 3},
		{[]int64{100, 200, 300, 400}, 2},
		{[]int64{5, 1, 1}, 10},
		{[]int64{7, 0, 3}, 10},
		{[]int64{1000, 1, 1, 1}, 2},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.weights), func(t *testing.T) {
			list := nodes(tt.weights...)
			total := int64(0)
			for _, w := range tt.weights {
				total += w
			}
			p := wrr.Strategy().Build(list, nil)
			picks(t, p, 17) // from anywhere
			got := count(picks(t, p, int(total)*tt.periods))
			for i, n := range list {
				if want := int(tt.weights[i]) * tt.periods; got[n] != want {
					t.Errorf("node %d: got %d of %d picks, want %d", i, got[n], int(total)*tt.periods, want)
				}
			}
		})
	}
}

// In any window a node has what its weight says, give or take little.
func TestTurnIsSmooth(t *testing.T) {
	weights := []int64{500, 100, 100, 300}
	for range 20 {
		list := nodes(weights...)
		run := picks(t, wrr.Strategy().Build(list, nil), 2000)
		for start := 0; start+100 <= len(run); start += 37 {
			got := count(run[start : start+100])
			for i, n := range list {
				if off := got[n] - int(weights[i]/10); off < -5 || off > 5 {
					t.Fatalf("node %d has %d of 100 picks from %d, want %d +/- 5", i, got[n], start, weights[i]/10)
				}
			}
		}
	}
}

func TestCaseB29ReturningNode(t *testing.T) {
	a, b, c := node("a", 100), node("b", 100), node("c", 100)
	st := wrr.Strategy()
	p := st.Build([]*selector.Node{a, b, c}, nil)
	picks(t, p, 10)
	p = st.Build([]*selector.Node{a, b}, p)
	c = node("c", 100)
	p = st.Build([]*selector.Node{a, b, c}, p)
	got := count(picks(t, p, 30))
	for _, n := range []*selector.Node{a, b, c} {
		if got[n] < 9 || got[n] > 11 {
			t.Errorf("%s: got %d of 30 picks, want 9 to 11", n.Instance().Address, got[n])
		}
	}
}

// However the set changes before each pick, the turn goes on.
func TestRotationSurvivesChanges(t *testing.T) {
	list := nodes(100, 100, 100, 100, 100, 100, 100, 100, 100, 100)
	extra := nodes(100, 100, 100, 100, 100, 100, 100, 100, 100, 100, 100)[10]
	tests := []struct {
		name      string
		low, high int // picks of each of the nodes 1 to 9
		change    func(round int) []*selector.Node
	}{
		{"same list", 100, 100, func(int) []*selector.Node { return list }},
		{"reversed", 100, 100, func(round int) []*selector.Node {
			if round%2 == 0 {
				return list
			}
			back := slices.Clone(list)
			slices.Reverse(back)
			return back
		}},
		{"weight doubled and halved", 90, 100, func(round int) []*selector.Node {
			list[0].Update(&selector.Instance{Address: "n0", Weight: int64(100 + round%2*100)})
			return list
		}},
		{"node comes and goes", 90, 100, func(round int) []*selector.Node {
			if round%2 == 0 {
				return list
			}
			return append(slices.Clone(list), extra)
		}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			var p selector.Picker
			got := make(map[*selector.Node]int)
			for round := range 1000 {
				p = wrr.Strategy().Build(tt.change(round), p)
				got[p.Pick(&selector.Request{})]++
			}
			for i, n := range list[1:] {
				if got[n] < tt.low || got[n] > tt.high {
					t.Errorf("node %d: got %d of 1000 picks, want %d to %d", i+1, got[n], tt.low, tt.high)
				}
			}
		})
	}
}

// Light nodes do not sit out the same round: heavy ones would get a burst.
func TestLightNodesSitOutApart(t *testing.T) {
	weights := make([]int64, 40)
	for i := range weights {
		weights[i] = int64(100 + i%2*49)
	}
	run := picks(t, wrr.Strategy().Build(nodes(weights...), nil), 4000)
	heavy := 0
	for i, n := range run {
		if heavy++; n.Weight() == 100 {
			heavy = 0
		}
		if heavy == 20 {
			t.Fatalf("20 picks up to %d went to the 20 heavier nodes alone", i)
		}
	}
}

func TestClientsStartApart(t *testing.T) {
	list := nodes(100, 100, 100, 100, 100)
	got := make(map[*selector.Node]int)
	for range 1000 {
		got[wrr.Strategy().Build(list, nil).Pick(&selector.Request{})]++
	}
	for i, n := range list {
		if got[n] < 130 || got[n] > 270 {
			t.Errorf("node %d is the first pick of %d of 1000 clients, want about 200", i, got[n])
		}
	}
}

// A node that is not ready leaves its share to all others, not to the next.
func TestShareOfMissingNodeIsSpread(t *testing.T) {
	list := nodes(100, 100, 100, 100)
	list[1].SetReady(false)
	got := count(picks(t, wrr.Strategy().Build(list, nil), 3000))
	for _, i := range []int{0, 2, 3} {
		if got[list[i]] != 1000 {
			t.Errorf("node %d: got %d of 3000 picks, want 1000", i, got[list[i]])
		}
	}
}

func TestExtremeWeights(t *testing.T) {
	list := nodes(math.MaxInt64, math.MaxInt64, 1)
	got := count(picks(t, wrr.Strategy().Build(list, nil), 1000))
	if got[list[0]] < 480 || got[list[1]] < 480 {
		t.Errorf("two huge weights: got %d and %d of 1000 picks, want about 500 each", got[list[0]], got[list[1]])
	}
}

func TestForeignPreviousIsIgnored(t *testing.T) {
	list := nodes(100)
	if n := wrr.Strategy().Build(list, foreign{}).Pick(&selector.Request{}); n != list[0] {
		t.Errorf("got %v, want the only node", n)
	}
}

type foreign struct{}

func (foreign) Pick(*selector.Request) *selector.Node { return nil }
