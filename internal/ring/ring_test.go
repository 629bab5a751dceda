package ring_test

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/materpc/materpc/internal/ring"
)

func members(seeds ...uint64) []ring.Member {
	out := make([]ring.Member, len(seeds))
	for i, s := range seeds {
		out[i] = ring.Member{Seed: s * 0xd1342543de82ef95, Points: 50 + int(s%3)*50}
	}
	return out
}

func TestFindIsTheNextPoint(t *testing.T) {
	for _, count := range []int{1, 2, 7, 300} {
		list := make([]uint64, count)
		for i := range list {
			list[i] = uint64(i + 1)
		}
		r := ring.New(members(list...))
		for range 2000 {
			position := rand.Uint64()
			at := r.Find(position)
			// Walking all round from a point must come back to it, and every
			// point between two neighbours' positions belongs to the later one.
			if next := r.Find(position); next != at || at < 0 || at >= r.Len() {
				t.Fatalf("%d members: Find(%d): got %d, then %d of %d", count, position, at, next, r.Len())
			}
		}
		at, seen := 0, make(map[int]int)
		for range r.Len() {
			seen[r.Owner(at)]++
			at = r.Next(at)
		}
		if at != 0 {
			t.Errorf("%d members: walked to %d, want back to 0", count, at)
		}
		for i, m := range members(list...) {
			if seen[i] != m.Points {
				t.Errorf("%d members: member %d has %d points, want %d", count, i, seen[i], m.Points)
			}
		}
	}
}

// The ring made by changes is the ring made from nothing.
func TestUpdateEqualsNew(t *testing.T) {
	for round := range uint64(200) {
		rnd := rand.New(rand.NewPCG(round, 7))
		var before, after []uint64
		for s := range uint64(20) {
			if rnd.IntN(3) > 0 {
				before = append(before, s+1)
			}
			if rnd.IntN(3) > 0 {
				after = append(after, s+1)
			}
		}
		rnd.Shuffle(len(after), func(i, j int) { after[i], after[j] = after[j], after[i] })
		from, to := members(before...), members(after...)
		var moved, added []uint32
		for _, m := range from {
			at := slices.Index(to, m)
			if at < 0 {
				moved = append(moved, ring.Gone)
				continue
			}
			moved = append(moved, uint32(at))
		}
		for i, m := range to {
			if !slices.Contains(from, m) {
				added = append(added, uint32(i))
			}
		}
		got, want := ring.New(from).Update(to, moved, added), ring.New(to)
		if got.Len() != want.Len() {
			t.Fatalf("round %d: %d points, want %d", round, got.Len(), want.Len())
		}
		for range 500 {
			position := rnd.Uint64()
			if got.Len() == 0 {
				break
			}
			g, w := got.Find(position), want.Find(position)
			if g != w || got.Owner(g) != want.Owner(w) {
				t.Fatalf("round %d: position %d is at %d of %d, want at %d of %d", round, position, g, got.Owner(g), w, want.Owner(w))
			}
		}
	}
}
