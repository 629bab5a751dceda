package alias_test

import (
	"fmt"
	"math"
	"math/rand/v2"
	"testing"

	"github.com/materpc/materpc/internal/alias"
)

func TestDrawFollowsWeights(t *testing.T) {
	tests := [][]int64{
		{1}, {5, 5, 5}, {200, 100}, {1, 9, 90}, {0, 7, 0, 7}, {0, 0, 3}, {-4, 1}, {math.MaxInt64, math.MaxInt64, 1}, {1 << 40, 1, 1 << 40},
	}
	for _, weights := range tests {
		t.Run(fmt.Sprint(weights), func(t *testing.T) {
			table := alias.New(weights)
			sum := 0.0
			for _, w := range weights {
				sum += float64(max(w, 0))
			}
			const draws = 1 << 16
			got := make([]int, len(weights))
			for k := range draws {
				// All high halves once: an even sample without chance.
				got[table.Draw(uint32(k)<<16|rand.Uint32()>>16)]++
			}
			for i, w := range weights {
				want := draws * float64(max(w, 0)) / sum
				if math.Abs(float64(got[i])-want) > draws/100 || (w <= 0 && got[i] > 0) {
					t.Errorf("index %d of weight %d: drawn %d times, want %.0f", i, w, got[i], want)
				}
			}
		})
	}
}

func TestNoWeightAboveZeroDrawsAll(t *testing.T) {
	table := alias.New([]int64{0, 0})
	if a, b := table.Draw(0), table.Draw(math.MaxUint32); a != 0 || b != 1 {
		t.Errorf("got %d and %d, want 0 and 1", a, b)
	}
}
