package ring

import (
	"math/bits"
	"slices"
)

// Member is one owner of points.
type Member struct {
	Seed   uint64 // hash of the member's name
	Points int    // number of points, in proportion to its weight
}

// Ring is a sorted list of points with an index by the high bits of the
// position, so that Find needs no binary search. It takes 12 to 16 bytes a
// point.
type Ring struct {
	places []uint64
	owners []uint32
	first  []uint32 // first[b] is the first point whose bucket is at least b
	shift  int      // a position's bucket is position >> shift
}

// New makes a ring from nothing, in linear time.
func New(members []Member) *Ring {
	total := 0
	for _, m := range members {
		total += m.Points
	}
	r := &Ring{places: make([]uint64, total), owners: make([]uint32, total)}
	r.shift, r.first = buckets(total)
	// Positions are uniform, so sorting by bucket leaves only a few points to
	// sort within each.
	for _, m := range members {
		for k := range m.Points {
			r.first[point(m.Seed, k)>>r.shift+1]++
		}
	}
	for b := 1; b < len(r.first); b++ {
		r.first[b] += r.first[b-1]
	}
	next := slices.Clone(r.first)
	for i, m := range members {
		for k := range m.Points {
			place := point(m.Seed, k)
			bucket := place >> r.shift
			r.insert(r.first[bucket], next[bucket], place, uint32(i))
			next[bucket]++
		}
	}
	return r
}

// insert puts a point into the sorted run [from, end).
func (r *Ring) insert(from, end uint32, place uint64, owner uint32) {
	at := end
	for at > from && r.places[at-1] > place {
		r.places[at], r.owners[at] = r.places[at-1], r.owners[at-1]
		at--
	}
	r.places[at], r.owners[at] = place, owner
}

// Gone says in Update that a member is not in the new list, or not with the
// same number of points.
const Gone = ^uint32(0)

// Update makes the ring of members out of r, in which moved tells for each
// member of r its index in members, or Gone; added lists the indices of members
// that none of r moved to. It copies r once and sorts only the new points.
func (r *Ring) Update(members []Member, moved, added []uint32) *Ring {
	fresh := New(pickMembers(members, added))
	total := len(fresh.places)
	for _, owner := range r.owners {
		if moved[owner] != Gone {
			total++
		}
	}
	next := &Ring{places: make([]uint64, 0, total), owners: make([]uint32, 0, total)}
	at := 0
	for i, place := range r.places {
		owner := moved[r.owners[i]]
		if owner == Gone {
			continue
		}
		for ; at < len(fresh.places) && fresh.places[at] < place; at++ {
			next.push(fresh.places[at], added[fresh.owners[at]])
		}
		next.push(place, owner)
	}
	for ; at < len(fresh.places); at++ {
		next.push(fresh.places[at], added[fresh.owners[at]])
	}
	next.index()
	return next
}

func (r *Ring) push(place uint64, owner uint32) {
	r.places = append(r.places, place)
	r.owners = append(r.owners, owner)
}

// index fills first from sorted places.
func (r *Ring) index() {
	r.shift, r.first = buckets(len(r.places))
	bucket := 0
	for i, place := range r.places {
		for ; uint64(bucket) <= place>>r.shift; bucket++ {
			r.first[bucket] = uint32(i)
		}
	}
	for ; bucket < len(r.first); bucket++ {
		r.first[bucket] = uint32(len(r.places))
	}
}

// Len is the number of points.
func (r *Ring) Len() int { return len(r.places) }

// Find returns the index of the point to which the position belongs. The ring
// must not be empty.
func (r *Ring) Find(position uint64) int {
	i := int(r.first[position>>r.shift])
	for i < len(r.places) && r.places[i] < position {
		i++
	}
	return i % len(r.places)
}

// Owner is the member that owns a point.
func (r *Ring) Owner(i int) int { return int(r.owners[i]) }

// Next is the point after i, going round.
func (r *Ring) Next(i int) int {
	if i++; i < len(r.places) {
		return i
	}
	return 0
}

// buckets sizes the index: a power of two of at least half the points.
func buckets(points int) (shift int, first []uint32) {
	width := min(max(bits.Len(uint(points))-1, 1), 31)
	return 64 - width, make([]uint32, 1<<width+1)
}

// point is the k-th position of a member: the k-th output of SplitMix64.
func point(seed uint64, k int) uint64 {
	h := seed + uint64(k+1)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return h ^ h>>31
}

func pickMembers(members []Member, indices []uint32) []Member {
	out := make([]Member, len(indices))
	for i, index := range indices {
		out[i] = members[index]
	}
	return out
}
