package draw

import (
	"math/rand/v2"

	"github.com/materpc/materpc/internal/alias"
	"github.com/materpc/materpc/selector"
)

// tries is how often a draw is repeated before the sweep: with half of the
// nodes gone 15 of 16 picks need no sweep.
const tries = 4

// Deck is a list of nodes to draw from.
type Deck struct {
	Sweep
	table alias.Table
}

// New makes a deck with the weights that the nodes have now. Nodes of weight 0
// stay out of it.
func New(nodes []*selector.Node) Deck {
	in := make([]*selector.Node, 0, len(nodes))
	weights := make([]int64, 0, len(nodes))
	for _, n := range nodes {
		if w := n.Weight(); w > 0 {
			in = append(in, n)
			weights = append(weights, w)
		}
	}
	return Deck{Sweep: NewSweep(in), table: alias.New(weights)}
}

// Draw returns the index of an allowed node, with a probability proportional
// to its weight as long as most nodes are allowed; -1 when none is. random
// serves the first try.
func (d *Deck) Draw(r *selector.Request, random uint32) int {
	if len(d.nodes) == 0 {
		return -1
	}
	for range tries {
		if i := d.table.Draw(random); r.Allows(d.nodes[i]) {
			return i
		}
		random = rand.Uint32()
	}
	return d.Find(r)
}

// Other returns the index of an allowed node other than first, all with the
// same probability; -1 when none was found. It looks at a bounded number of
// nodes, so it may miss one when nearly all are not allowed.
func (d *Deck) Other(r *selector.Request, first int, random uint32) int {
	rest := uint64(len(d.nodes) - 1)
	if rest == 0 {
		return -1
	}
	for range tries {
		i := int(uint64(random) * rest >> 32)
		if i >= first {
			i++
		}
		if r.Allows(d.nodes[i]) {
			return i
		}
		random = rand.Uint32()
	}
	const bound = 40
	return d.find(r, first, min(int(d.prime), bound))
}
