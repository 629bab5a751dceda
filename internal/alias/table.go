package alias

// Table is an alias table over len(weights) indices. It is immutable.
type Table struct {
	n     uint64
	slots []slot // nil when all weights are equal
}

// slot answers index itself while the fraction is below keep, else other.
type slot struct {
	keep  uint32
	other uint32
}

// New builds the table in linear time. Weights at or below zero are never
// drawn, unless no weight is above zero: then all are drawn alike.
func New(weights []int64) Table {
	t := Table{n: uint64(len(weights))}
	sum, equal := 0.0, true
	for _, w := range weights {
		sum += float64(max(w, 0))
		equal = equal && w == weights[0]
	}
	if equal || sum == 0 {
		return t
	}
	t.fill(weights, float64(len(weights))/sum)
	return t
}

func (t *Table) fill(weights []int64, scale float64) {
	t.slots = make([]slot, len(weights))
	rest := make([]float64, len(weights))
	var small, large []uint32
	for i, w := range weights {
		rest[i] = float64(max(w, 0)) * scale
		if rest[i] < 1 {
			small = append(small, uint32(i))
		} else {
			large = append(large, uint32(i))
		}
	}
	for len(small) > 0 && len(large) > 0 {
		s, l := small[len(small)-1], large[len(large)-1]
		small = small[:len(small)-1]
		t.slots[s] = slot{keep: uint32(rest[s] * (1 << 32)), other: l}
		rest[l] -= 1 - rest[s]
		if rest[l] < 1 {
			large = large[:len(large)-1]
			small = append(small, l)
		}
	}
	// What is left differs from 1 by rounding only: such a slot is its own alias.
	for _, i := range append(small, large...) {
		t.slots[i] = slot{other: i}
	}
}

// Draw maps 32 random bits to an index. The table must not be empty.
func (t *Table) Draw(random uint32) int {
	// One multiplication gives both the slot (high half) and a fresh fraction
	// (low half); D. Lemire, "Fast random integer generation in an interval".
	product := uint64(random) * t.n
	i := uint32(product >> 32)
	if t.slots == nil || uint32(product) < t.slots[i].keep {
		return int(i)
	}
	return int(t.slots[i].other)
}
