package ewma

import (
	"math"
	"sync/atomic"
	"time"
)

const (
	// Tau is the mean lifetime of a latency sample. Kratos v2 uses the same
	// 600 ms (selector/node/ewma); Finagle's PeakEwma and go-zero use 10 s,
	// which follows a degraded instance too slowly.
	Tau = 600 * time.Millisecond

	// Warm is the number of results after which the averages are trusted
	// fully. Until then the latency is the plain mean of what came in, so a
	// lucky first sample does not stand for the peer.
	Warm = 20

	// A result moves the success ratio by at least 1/16, however close
	// together results come: an average weighted by time alone would not
	// notice a peer that fails a thousand calls within a millisecond. It moves
	// it by at most 1/2, so one failure after a pause is no verdict.
	minSuccessStep = 1.0 / 16
	maxSuccessStep = 1.0 / 2

	ratioOne = 1<<16 - 1
	goodBit  = 1 << 15
)

// Stat is the pair of averages. The zero value must be Reset before use. All
// methods are safe for concurrent use and never block.
type Stat struct {
	// word packs latency (float32 bits, high half), success (16-bit fixed
	// point), the last result (1 bit) and the result count (15 bits, saturating at
	// Warm): a reader always sees values that belong together.
	word  atomic.Uint64
	stamp atomic.Int64
}

// Values is one consistent reading of a Stat.
type Values struct {
	Latency float64 // nanoseconds; 0 while unknown
	Success float64 // 0 to 1; 1 before the first result
	Results int     // results seen, at most Warm
	Good    bool    // the last result was good; true before the first
}

// Reset makes the Stat new at the monotonic nanosecond now.
func (s *Stat) Reset(now int64) {
	s.stamp.Store(now)
	s.word.Store(pack(Values{Success: 1, Good: true}))
}

// Load reads the averages.
func (s *Stat) Load() Values { return unpack(s.word.Load()) }

// Observe records one result that arrived at now. A negative latency means
// that the result says nothing about latency (a stream's life, for one). The
// latency of a failure counts only when it is above the average: a peer that
// fails at once must not look fast.
func (s *Stat) Observe(now, latency int64, ok bool) {
	elapsed := max(now-s.stamp.Swap(now), 0)
	step := -math.Expm1(-float64(elapsed) / float64(Tau))
	for {
		old := s.word.Load()
		v := unpack(old)
		v.update(step, float64(latency), ok)
		if s.word.CompareAndSwap(old, pack(v)) {
			return
		}
	}
}

func (v *Values) update(step, latency float64, ok bool) {
	if latency >= 0 && (ok || latency > v.Latency) {
		v.addLatency(step, latency)
	}
	v.Good = ok
	target := 0.0
	if ok {
		target = 1
	}
	v.Success += (target - v.Success) * min(max(step, minSuccessStep), maxSuccessStep)
	v.Results = min(v.Results+1, Warm)
}

func (v *Values) addLatency(step, latency float64) {
	switch {
	case v.Latency == 0:
		step = 1
	case v.Results < Warm:
		step = max(step, 1/float64(v.Results+1))
	}
	// Zero means unknown, so a known latency is at least one nanosecond.
	v.Latency = max(v.Latency+(latency-v.Latency)*step, 1)
}

func pack(v Values) uint64 {
	latency := uint64(math.Float32bits(float32(v.Latency)))
	ratio := uint64(v.Success*ratioOne + 0.5)
	word := latency<<32 | ratio<<16 | uint64(v.Results)
	if v.Good {
		word |= goodBit
	}
	return word
}

func unpack(word uint64) Values {
	return Values{
		Latency: float64(math.Float32frombits(uint32(word >> 32))),
		Success: float64(word>>16&ratioOne) * (1.0 / ratioOne),
		Results: int(word & (goodBit - 1)),
		Good:    word&goodBit != 0,
	}
}
