package shield

import (
	"math/rand/v2"
	"sync"
	"testing"
	"time"
)

// TestWindowAgainstModel compares the window with a list of all results.
func TestWindowAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(200) {
		random := rand.New(rand.NewPCG(seed, 1))
		w := newWindow(10 * time.Millisecond)
		type result struct {
			period       int64
			failed, slow bool
		}
		var all []result
		now := random.Int64N(int64(time.Hour))
		for range 400 {
			if random.IntN(20) == 0 {
				now += random.Int64N(int64(30 * time.Millisecond)) // idle, maybe longer than the window
			}
			now += random.Int64N(int64(200 * time.Microsecond))
			r := result{now / w.width, random.IntN(2) == 0, random.IntN(3) == 0}
			all = append(all, r)
			w.add(now, r.failed, r.slow)
			var want tally
			for _, r := range all {
				if r.period > now/w.width-windowBuckets {
					want.calls++
					want.failures += number(r.failed)
					want.slow += number(r.slow)
				}
			}
			if got := w.sum(now); got != want {
				t.Fatalf("seed %d: window %+v, want %+v", seed, got, want)
			}
		}
	}
}

// TestWindowDropsWhatIsTooLate: a result whose bucket serves the next round
// already must not count in that.
func TestWindowDropsWhatIsTooLate(t *testing.T) {
	t.Parallel()
	w := newWindow(10 * time.Millisecond)
	before, now := int64(3*time.Millisecond), int64(13*time.Millisecond)
	w.add(now, true, true)
	w.add(before, true, true)
	if got, want := w.sum(now), (tally{1, 1, 1}); got != want {
		t.Errorf("window %+v, want %+v", got, want)
	}
}

// TestWindowReaderThatIsTooLate: a bucket of which the next round has taken the
// calls, but not the failures yet, holds nothing of this round.
func TestWindowReaderThatIsTooLate(t *testing.T) {
	t.Parallel()
	w := newWindow(10 * time.Millisecond)
	now := int64(3 * time.Millisecond)
	w.add(now, true, true)
	w.add(now+10*w.width, false, false)
	if got := w.sum(now); got != (tally{}) {
		t.Errorf("window %+v", got)
	}
}

// TestWindowCountStaysAtItsEnd: a full counter must not run into its tag.
func TestWindowCountStaysAtItsEnd(t *testing.T) {
	t.Parallel()
	var c counter
	c.add(7)
	c.word.Store(c.word.Load() | countMask)
	c.add(7)
	if got := c.at(7); got != countMask {
		t.Errorf("count %d, want %d", got, countMask)
	}
}

// TestWindowBucketsTurnUnderLoad has many goroutines cross into new buckets at
// once: no result may be lost, counted twice or put into another period.
func TestWindowBucketsTurnUnderLoad(t *testing.T) {
	t.Parallel()
	const workers, rounds, each, repeats = 8, 6, 5, 5000
	w := newWindow(10 * time.Millisecond)
	for round := range int64(rounds) {
		var wg sync.WaitGroup
		for range workers {
			wg.Go(func() {
				for i := range int64(each * repeats) {
					w.add((round*each+i/repeats)*w.width, true, false)
				}
			})
		}
		wg.Wait()
		last := (round*each + each - 1) * w.width
		want := workers * repeats * int(min((round+1)*each, windowBuckets))
		if got := w.sum(last); got.calls != want || got.failures != want {
			t.Fatalf("round %d: %+v, want %d calls", round, got, want)
		}
	}
}
