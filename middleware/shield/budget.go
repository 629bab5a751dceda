package shield

import (
	"fmt"
	"math"
	"sync/atomic"
	"time"
)

// Budget bounds the attempts beyond the first of everything that shares it:
// retries and hedges, of one shield, of several, of all partitions. A first
// attempt is never refused. When the budget refuses, the failure at hand is the
// result. Safe for concurrent use; it takes no lock.
type Budget struct {
	name  string
	fault error

	// Tokens in thousandths: gRPC's retryThrottling, or an allowance.
	tokens atomic.Int64
	full   int64
	gain   int64 // a success earns it; 0 for an allowance

	period   int64 // of an allowance, nanoseconds
	refilled atomic.Int64

	share    float64 // of the first attempts in flight
	least    int64
	inFlight atomic.Int64 // first attempts
	extra    atomic.Int64 // attempts beyond the first
}

const thousandth = 1000

// NewBudget is gRPC's retry throttling
// (https://github.com/grpc/proposal/blob/master/A6-client-retries.md): it starts
// with tokens, a handled failure costs one, a success earns ratio, and extra
// attempts run while more than half is left. gRPC's example is 100 and 0.1.
// tokens is 1 to 1,000, ratio 0.001 to 1,000 in steps of 0.001. Faults are
// reported by the shield that uses it.
func NewBudget(tokens int, ratio float64) *Budget {
	b := &Budget{name: fmt.Sprintf("%d tokens, %v each success", tokens, ratio)}
	b.full, b.gain = int64(tokens)*thousandth, int64(math.Round(ratio*thousandth))
	switch {
	case tokens < 1 || tokens > 1000:
		b.fault = fmt.Errorf("tokens is %d: give 1 to 1000", tokens)
	case !(ratio >= 0.001 && ratio <= 1000):
		b.fault = fmt.Errorf("ratio is %v: give 0.001 to 1000", ratio)
	}
	b.tokens.Store(b.full)
	return b
}

// NewAllowance allows n extra attempts in each period, counted from its first
// use; what is not used lapses.
func NewAllowance(n int, period time.Duration) *Budget {
	b := &Budget{name: fmt.Sprintf("%d each %v", n, period), full: int64(n) * thousandth, period: int64(period)}
	switch {
	case n < 0:
		b.fault = fmt.Errorf("n is %d: give 0 or more", n)
	case int64(n) > math.MaxInt64/thousandth:
		b.fault = fmt.Errorf("n is %d: give at most %d", n, int64(math.MaxInt64/thousandth))
	case period <= 0:
		b.fault = fmt.Errorf("period is %v: give more than 0", period)
	}
	b.refilled.Store(math.MinInt64)
	return b
}

// NewShare allows as many extra attempts in flight as share of the first
// attempts in flight, but at least least: Envoy's retry budget, whose defaults
// are 0.2 and 3.
func NewShare(share float64, least int) *Budget {
	b := &Budget{name: fmt.Sprintf("%v in flight, at least %d", share, least), share: share, least: int64(least)}
	switch {
	case !(share > 0 && share <= 1):
		b.fault = fmt.Errorf("share is %v: give more than 0, at most 1", share)
	case least < 0:
		b.fault = fmt.Errorf("least is %d: give 0 or more", least)
	}
	return b
}

// String describes the budget.
func (b *Budget) String() string { return b.name }

// first notes a first attempt in flight, or with -1 its end.
func (b *Budget) first(n int64) {
	if b != nil && b.share > 0 {
		b.inFlight.Add(n)
	}
}

// spend takes what an extra attempt costs, or reports that there is none. Each
// true must be followed by one refund when the attempt has ended.
func (b *Budget) spend() bool {
	switch {
	case b == nil:
		return true
	case b.share > 0:
		return b.spendShare()
	case b.period > 0:
		return b.spendAllowance()
	}
	return 2*b.tokens.Load() > b.full
}

func (b *Budget) spendShare() bool {
	for {
		extra := b.extra.Load()
		if extra >= max(b.least, int64(b.share*float64(b.inFlight.Load()))) {
			return false
		}
		if b.extra.CompareAndSwap(extra, extra+1) {
			return true
		}
	}
}

func (b *Budget) spendAllowance() bool {
	b.refill(monotonic())
	for {
		left := b.tokens.Load()
		if left < thousandth {
			return false
		}
		if b.tokens.CompareAndSwap(left, left-thousandth) {
			return true
		}
	}
}

// refill starts the period that now is in, once.
func (b *Budget) refill(now int64) {
	for {
		last := b.refilled.Load()
		if last != math.MinInt64 && now-last < b.period {
			return
		}
		start := now
		if last != math.MinInt64 {
			start = last + (now-last)/b.period*b.period
		}
		if b.refilled.CompareAndSwap(last, start) {
			b.tokens.Store(b.full)
			return
		}
	}
}

// refund is the end of an extra attempt.
func (b *Budget) refund() {
	if b != nil && b.share > 0 {
		b.extra.Add(-1)
	}
}

// succeeded and failed tell of an attempt's end, the first one included.
func (b *Budget) succeeded() { b.add(b.gainOf()) }
func (b *Budget) failed()    { b.add(-b.costOf()) }

func (b *Budget) gainOf() int64 {
	if b == nil {
		return 0
	}
	return b.gain
}

func (b *Budget) costOf() int64 {
	if b == nil || b.gain == 0 {
		return 0
	}
	return thousandth
}

func (b *Budget) add(n int64) {
	if n == 0 {
		return
	}
	for {
		left := b.tokens.Load()
		next := min(max(left+n, 0), b.full)
		if next == left || b.tokens.CompareAndSwap(left, next) {
			return
		}
	}
}

// left is what a snapshot shows: tokens, or extra attempts in flight.
func (b *Budget) left() float64 {
	switch {
	case b == nil:
		return 0
	case b.share > 0:
		return max(float64(b.least), b.share*float64(b.inFlight.Load())) - float64(b.extra.Load())
	case b.period > 0:
		b.refill(monotonic())
	}
	return float64(b.tokens.Load()) / thousandth
}
