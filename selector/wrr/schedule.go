package wrr

import (
	"cmp"
	"slices"
	"sync/atomic"

	"github.com/materpc/materpc/selector"
)

// schedule is a static stride schedule, the algorithm of gRFC A58 and
// grpc-go's weighted_round_robin: rounds over a ring of slots, in each of which
// a slot is used or passed over, so that it is used weight times in maxWeight
// rounds, evenly spread. The sequence number alone says which slot is next and
// whether it is used.
//
// Two things differ from grpc. A node that is much heavier than the mean gets
// several slots around the ring, so no slot is above one and a half times the
// mean and a pick passes over few (grpc needs n/2 steps beside one heavy node).
// And the place of a slot in the ring is a hash of its node: it depends on no
// other node, so the turn survives any change of the set.
type schedule struct {
	slots     []slot
	maxWeight uint64
	equal     bool // all slots have the same weight: all are used in all rounds
}

type slot struct {
	node   *selector.Node
	place  uint64 // position in the ring
	weight uint64
	phase  uint64 // spreads the rounds in which slots of one weight are used
}

// weightBits bounds weights so that weight times round fits in 64 bits.
const weightBits = 31

func newSchedule(nodes []*selector.Node, seed uint64) schedule {
	weights, mean := readWeights(nodes)
	s := schedule{slots: make([]slot, 0, len(nodes))}
	for i, n := range nodes {
		if weights[i] > 0 {
			s.add(n, weights[i], max(uint64(float64(weights[i])/mean+0.5), 1), seed)
		}
	}
	slices.SortStableFunc(s.slots, func(a, b slot) int { return cmp.Compare(a.place, b.place) })
	s.equal = true
	for _, sl := range s.slots {
		s.maxWeight = max(s.maxWeight, sl.weight)
		s.equal = s.equal && sl.weight == s.slots[0].weight
	}
	for i := range s.slots {
		s.slots[i].phase = selector.Mix(s.slots[i].place) % s.maxWeight
	}
	return s
}

// readWeights reads each weight once, scaled to at most weightBits, and their
// mean over the nodes that are not drained.
func readWeights(nodes []*selector.Node) (weights []uint64, mean float64) {
	weights = make([]uint64, len(nodes))
	highest := uint64(0)
	for i, n := range nodes {
		weights[i] = uint64(n.Weight())
		highest = max(highest, weights[i])
	}
	shift := 0
	for highest>>shift >= 1<<weightBits {
		shift++
	}
	sum, count := 0.0, 0.0
	for i, w := range weights {
		if w == 0 {
			continue
		}
		weights[i] = max(w>>shift, 1)
		sum += float64(weights[i])
		count++
	}
	return weights, sum / max(count, 1)
}

// add gives a node count slots at equal distances around the ring.
func (s *schedule) add(n *selector.Node, weight, count, seed uint64) {
	place := selector.Mix(selector.HashKey(n.Instance().Address) ^ seed)
	distance := ^uint64(0)/count + 1 // 0 for a single slot, which needs none
	for i := range count {
		share := weight / count
		if i < weight%count {
			share++
		}
		s.slots = append(s.slots, slot{node: n, place: place + i*distance, weight: share})
	}
}

// at returns the node of a turn, nil when its slot is passed over.
func (s *schedule) at(turn uint64) *selector.Node {
	n := uint64(len(s.slots))
	sl := &s.slots[turn%n]
	if !s.equal && (sl.weight*(turn/n%s.maxWeight)+sl.phase)%s.maxWeight >= sl.weight {
		return nil
	}
	return sl.node
}

// resume returns the turn from which to go on: shared with old when the ring
// is the same, at the same place of the ring when it changed. Without old the
// first slot is random, since the order is.
func (s *schedule) resume(old *picker) *atomic.Uint64 {
	turn := &atomic.Uint64{}
	n := uint64(len(s.slots))
	switch {
	case n == 0 || old == nil || len(old.slots) == 0:
	case slices.EqualFunc(s.slots, old.slots, func(a, b slot) bool { return a.node == b.node }):
		return old.turn
	default:
		was := old.turn.Load()
		place := old.slots[was%uint64(len(old.slots))].place
		next, _ := slices.BinarySearchFunc(s.slots, place, func(sl slot, p uint64) int { return cmp.Compare(sl.place, p) })
		turn.Store(was/uint64(len(old.slots))*n + uint64(next))
	}
	return turn
}
