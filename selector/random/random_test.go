package random_test

import (
	"testing"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/random"
)

func TestSharesFollowWeights(t *testing.T) {
	weights := []int64{100, 200, 0, 700}
	nodes := make([]*selector.Node, len(weights))
	for i, w := range weights {
		nodes[i] = selector.NewNode(&selector.Instance{Address: string(rune('a' + i)), Weight: w}, 1)
		nodes[i].SetReady(true)
	}
	p := random.Strategy().Build(nodes, nil)
	got := make(map[*selector.Node]int)
	const calls = 20000
	for range calls {
		got[p.Pick(&selector.Request{})]++
	}
	for i, n := range nodes {
		want := int(calls * weights[i] / 1000)
		if off := got[n] - want; off < -400 || off > 400 || (want == 0 && got[n] > 0) {
			t.Errorf("node of weight %d: got %d of %d calls, want %d", weights[i], got[n], calls, want)
		}
	}
}
