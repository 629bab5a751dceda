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

// MaxMembers is the highest number of members of a ring; further ones own no
// points.
const MaxMembers = 1 << ownerBits

const (
	ownerBits = 24
	ownerMask = MaxMembers - 1
)

// Ring is a sorted list of points with an index by the high bits of the
// position, so that Find needs no binary search. It takes 9 bytes a
// point.
type Ring struct {
	// points hold a place in the high 40 bits and its owner in the low 24: one
	// word a point keeps a lookup at two cache lines.
	points []uint64
	first  []uint32 // first[b] is the first point whose bucket is at least b
	shift  int      // a position's bucket is position >> shift
}

// New makes a ring from nothing, in linear time.
func New(members []Member) *Ring {
	members = members[:min(len(members), MaxMembers)]
	total := 0
	for _, m := range members {
		total += m.Points
	}
	r := &Ring{points: make([]uint64, total)}
	r.shift, r.first = buckets(total)
	// Places are uniform, so sorting by bucket leaves only a few points to sort
	// within each.
	for _, m := range members {
		for k := range m.Points {
			r.first[place(m.Seed, k)>>r.shift+1]++
		}
	}
	r.accumulate()
	next := slices.Clone(r.first)
	for i, m := range members {
		for k := range m.Points {
			at := place(m.Seed, k)
			bucket := at >> r.shift
			r.insert(r.first[bucket], next[bucket], at|uint64(i))
			next[bucket]++
		}
	}
	return r
}

// insert puts a point into the sorted run [from, end).
func (r *Ring) insert(from, end uint32, point uint64) {
	at := end
	for at > from && r.points[at-1] > point {
		r.points[at] = r.points[at-1]
		at--
	}
	r.points[at] = point
}

// Gone says in Update that a member is not in the new list, or not with the
// same number of points.
const Gone = ^uint32(0)

// Update makes the ring of members out of r, in which moved tells for each
// member of r its index in members, or Gone; added lists the indices of members
// that none of r moved to. It copies r once and sorts only the new points.
func (r *Ring) Update(members []Member, moved, added []uint32) *Ring {
	fresh := New(pickMembers(members, added)).points
	for i, point := range fresh {
		fresh[i] = point&^ownerMask | uint64(added[point&ownerMask])
	}
	points := make([]uint64, len(r.points)+len(fresh))
	n := 0
	for _, point := range r.points {
		owner := moved[point&ownerMask]
		if owner == Gone {
			continue
		}
		for len(fresh) > 0 && fresh[0] < point {
			points[n], fresh = fresh[0], fresh[1:]
			n++
		}
		points[n] = point&^ownerMask | uint64(owner)
		n++
	}
	n += copy(points[n:], fresh)
	next := &Ring{points: points[:n]}
	next.index()
	return next
}

// index fills first from sorted points.
func (r *Ring) index() {
	r.shift, r.first = buckets(len(r.points))
	for _, point := range r.points {
		r.first[point>>r.shift+1]++
	}
	r.accumulate()
}

// accumulate turns the number of points of the bucket before into the number
// of points of all buckets before.
func (r *Ring) accumulate() {
	for b := 1; b < len(r.first); b++ {
		r.first[b] += r.first[b-1]
	}
}

// Len is the number of points.
func (r *Ring) Len() int { return len(r.points) }

// Find returns the index of the point to which the position belongs. The ring
// must not be empty.
func (r *Ring) Find(position uint64) int {
	i := int(r.first[position>>r.shift])
	for i < len(r.points) && r.points[i]|ownerMask < position {
		i++
	}
	if i == len(r.points) {
		return 0
	}
	return i
}

// Owner is the member that owns a point.
func (r *Ring) Owner(i int) int { return int(r.points[i] & ownerMask) }

// Next is the point after i, going round.
func (r *Ring) Next(i int) int {
	if i++; i < len(r.points) {
		return i
	}
	return 0
}

// buckets sizes the index: a power of two, for 4 to 8 points a bucket, which
// lie within one or two cache lines.
func buckets(points int) (shift int, first []uint32) {
	width := min(max(bits.Len(uint(points))-3, 1), 30)
	return 64 - width, make([]uint32, 1<<width+1)
}

// place is the k-th place of a member: the high bits of the k-th output of
// SplitMix64.
func place(seed uint64, k int) uint64 {
	h := seed + uint64(k+1)*0x9e3779b97f4a7c15
	h = (h ^ h>>30) * 0xbf58476d1ce4e5b9
	h = (h ^ h>>27) * 0x94d049bb133111eb
	return (h ^ h>>31) &^ ownerMask
}

func pickMembers(members []Member, indices []uint32) []Member {
	out := make([]Member, len(indices))
	for i, index := range indices {
		out[i] = members[index]
	}
	return out
}
