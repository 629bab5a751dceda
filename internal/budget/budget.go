package budget

import "sync/atomic"

// Budget is a bucket of 100 tokens that earns 0.1 back per success. The zero
// value is full. It is safe for concurrent use and never blocks.
type Budget struct {
	spent atomic.Int64 // in tenths of a token
}

const (
	tenths   = 10
	capacity = 100 * tenths
)

// Spend takes a token and reports whether there was one.
func (b *Budget) Spend() bool {
	for {
		spent := b.spent.Load()
		if spent+tenths > capacity {
			return false
		}
		if b.spent.CompareAndSwap(spent, spent+tenths) {
			return true
		}
	}
}

// Earn gives a tenth of a token back. A full bucket is only read.
func (b *Budget) Earn() {
	for {
		spent := b.spent.Load()
		if spent == 0 || b.spent.CompareAndSwap(spent, spent-1) {
			return
		}
	}
}

// Tokens returns how many whole tokens are left.
func (b *Budget) Tokens() int { return int((capacity - b.spent.Load()) / tenths) }
