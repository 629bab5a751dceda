package draw

import (
	"math/rand/v2"

	"github.com/materpc/materpc/selector"
)

// Sweep looks through a list of nodes in a random order of its own. It goes in
// strides, not from neighbour to neighbour: else the node behind a gap of nodes
// that are not allowed would get the gap's whole share.
type Sweep struct {
	nodes []*selector.Node
	// prime is the least prime above the number of nodes. Any stride modulo a
	// prime visits every index once, and the few that are no node are passed
	// over; so each sweep may take a stride of its own.
	prime uint32
}

// NewSweep makes a sweep over nodes, which must not change any more.
func NewSweep(nodes []*selector.Node) Sweep {
	return Sweep{nodes: nodes, prime: primeAbove(uint32(len(nodes)))}
}

// Nodes lists the nodes; it must not be changed.
func (s *Sweep) Nodes() []*selector.Node { return s.nodes }

// Find returns the index of an allowed node, -1 when there is none.
func (s *Sweep) Find(r *selector.Request) int { return s.find(r, -1, int(s.prime)) }

// find visits up to count places from a random start.
func (s *Sweep) find(r *selector.Request, except, count int) int {
	random := rand.Uint64()
	i := below(random>>32, s.prime)
	step := 1 + below(random&(1<<32-1), s.prime-1)
	for range count {
		if i < uint32(len(s.nodes)) && int(i) != except && r.Allows(s.nodes[i]) {
			return int(i)
		}
		if i += step; i >= s.prime {
			i -= s.prime
		}
	}
	return -1
}

// below maps 32 random bits to a number below n.
func below(random uint64, n uint32) uint32 { return uint32(random * uint64(n) >> 32) }

func primeAbove(n uint32) uint32 {
	for n = max(n+1, 2); ; n++ {
		prime := true
		for d := uint32(2); d*d <= n && prime; d++ {
			prime = n%d != 0
		}
		if prime {
			return n
		}
	}
}
