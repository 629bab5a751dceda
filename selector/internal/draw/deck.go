// Package draw finds an allowed node at random: by weight while most nodes are
// allowed, by a sweep over all of them when few are. It is shared by the
// strategies, immutable after New, and allocates nothing.
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
	nodes  []*selector.Node
	table  alias.Table
	stride [4]uint32
}

// New makes a deck with the weights that the nodes have now. Nodes of weight 0
// stay out of it.
func New(nodes []*selector.Node) Deck {
	d := Deck{nodes: make([]*selector.Node, 0, len(nodes))}
	weights := make([]int64, 0, len(nodes))
	for _, n := range nodes {
		if w := n.Weight(); w > 0 {
			d.nodes = append(d.nodes, n)
			weights = append(weights, w)
		}
	}
	d.table = alias.New(weights)
	d.stride = strides(uint32(len(d.nodes)))
	return d
}

// Nodes lists the nodes of the deck; it must not be changed.
func (d *Deck) Nodes() []*selector.Node { return d.nodes }

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
	return d.sweep(r, -1, len(d.nodes))
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
	const bound = 32
	return d.sweep(r, first, min(len(d.nodes), bound))
}

// sweep visits up to count nodes from a random start. It goes in strides, not
// from neighbour to neighbour: else the node behind a gap would get the gap's
// whole share.
func (d *Deck) sweep(r *selector.Request, except, count int) int {
	n := uint32(len(d.nodes))
	random := rand.Uint64()
	i := uint32(random >> 32 * uint64(n) >> 32)
	step := d.stride[random%uint64(len(d.stride))]
	for range count {
		if int(i) != except && r.Allows(d.nodes[i]) {
			return int(i)
		}
		if i += step; i >= n {
			i -= n
		}
	}
	return -1
}

// strides returns steps below n that are coprime to n, so that n of them visit
// every index once.
func strides(n uint32) [4]uint32 {
	s := [4]uint32{}
	if n < 2 {
		return s
	}
	for k, part := range [4]float64{0.618, 0.382, 0.764, 0.236} {
		step := max(uint32(float64(n)*part), 1)
		for gcd(step, n) != 1 {
			step = step%(n-1) + 1
		}
		s[k] = step
	}
	return s
}

func gcd(a, b uint32) uint32 {
	for b != 0 {
		a, b = b, a%b
	}
	return a
}
