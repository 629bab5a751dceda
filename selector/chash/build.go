package chash

import (
	"slices"

	"github.com/materpc/materpc/internal/ring"
	"github.com/materpc/materpc/selector"
)

// maxRing bounds the points of a ring (19 MB). Beyond it the points of every
// node are halved until they fit, which moves many keys once; 10,000 nodes of
// weight 100 have a million.
const maxRing = 1 << 21

// members gives each node its seed and points.
func members(nodes []*selector.Node, points int) []ring.Member {
	out := make([]ring.Member, len(nodes))
	perWeight := float64(points) / selector.DefaultWeight
	total := 0.0
	for _, n := range nodes {
		total += max(float64(n.Weight())*perWeight, 1)
	}
	// One node alone may be as heavy as it likes.
	for total > maxRing && perWeight > 0 {
		total, perWeight = total/2, perWeight/2
	}
	for i, n := range nodes {
		out[i] = ring.Member{
			Seed:   selector.HashKey(n.Instance().Address),
			Points: int(min(max(float64(n.Weight())*perWeight+0.5, 1), maxRing)),
		}
	}
	return out
}

// newRing builds the ring of p out of the one of old as far as members stayed.
func newRing(p, old *picker) *ring.Ring {
	if old == nil || len(old.members) == 0 {
		return ring.New(p.members)
	}
	if slices.Equal(p.members, old.members) {
		return old.ring
	}
	index := make(map[ring.Member]uint32, len(p.members))
	for i, m := range p.members {
		index[m] = uint32(i)
	}
	moved := make([]uint32, len(old.members))
	stays := make([]bool, len(p.members))
	for i, m := range old.members {
		moved[i] = ring.Gone
		// Of twins (one address, two ids) one finds its place; the other is new.
		if at, ok := index[m]; ok && !stays[at] {
			moved[i], stays[at] = at, true
		}
	}
	var added []uint32
	for i, stay := range stays {
		if !stay {
			added = append(added, uint32(i))
		}
	}
	if len(added) > len(p.members)/4 {
		return ring.New(p.members)
	}
	return old.ring.Update(p.members, moved, added)
}
