package shield

import (
	"math"
	"sync/atomic"
	"time"
)

// windowBuckets is into how many parts a window is cut: it forgets a tenth of
// its length at a time.
const windowBuckets = 10

// minWindow keeps buckets at a millisecond or more, so that a tag comes round
// only after two years, see [counter].
const minWindow = windowBuckets * time.Millisecond

// window counts how calls ended over the last while, without a lock. A bucket
// needs no clearing when its time comes round again, since each counter carries
// the number of its period and starts anew with the first result of a later one.
type window struct {
	width   int64 // of a bucket, in nanoseconds
	buckets [windowBuckets]bucket
}

type bucket struct{ calls, failures, slow counter }

// tally is what a window, or a cohort of probes, holds.
type tally struct{ calls, failures, slow int }

func newWindow(length time.Duration) *window {
	return &window{width: int64(length) / windowBuckets}
}

// add counts one call that ended at now. The call is counted before its failure,
// and read after it: no reader sees more failures than calls.
func (w *window) add(now int64, failed, slow bool) {
	period := now / w.width
	b := &w.buckets[uint64(period)%windowBuckets]
	b.calls.add(period)
	if failed {
		b.failures.add(period)
	}
	if slow {
		b.slow.add(period)
	}
}

// sum returns what the window holds at now: the current bucket and the nine
// before it.
func (w *window) sum(now int64) tally {
	var t tally
	last := now / w.width
	for period := last - windowBuckets + 1; period <= last; period++ {
		b := &w.buckets[uint64(period)%windowBuckets]
		slow, failures := b.slow.at(period), b.failures.at(period)
		calls := b.calls.at(period) // none, if the next round has begun meanwhile
		t.calls += calls
		t.failures += min(failures, calls)
		t.slow += min(slow, calls)
	}
	return t
}

// later adds to a monotonic time; what is too far away is the end of time.
func later(now int64, d time.Duration) int64 {
	return now + min(int64(d), math.MaxInt64-max(now, 0))
}

// counter is a count and the period that it belongs to in one word, so that a
// result can never land in another period than its own: 36 bits of the period's
// number over 28 bits of count, which stays at its end when it is full.
type counter struct{ word atomic.Uint64 }

const (
	countBits = 28
	countMask = 1<<countBits - 1
)

func (c *counter) add(period int64) {
	tag := uint64(period) << countBits
	for {
		old := c.word.Load()
		next := tag | 1
		switch lead := int64(old&^countMask - tag); {
		case lead == 0:
			if next = old + 1; next&countMask == 0 {
				return
			}
		case lead > 0 && old != 0: // 0 is a counter without a period yet
			return // so late that its bucket serves the next round already
		}
		if c.word.CompareAndSwap(old, next) {
			return
		}
	}
}

func (c *counter) at(period int64) int {
	word := c.word.Load()
	if word&^countMask != uint64(period)<<countBits {
		return 0
	}
	return int(word & countMask)
}
