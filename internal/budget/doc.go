// Package budget is the token bucket that bounds extra attempts, as gRPC's
// retry throttling counts them (gRFC A6): each extra attempt costs a token,
// each success earns a part of one back.
//
//	var b budget.Budget // 100 tokens
//	if b.Spend() { ... }
//	b.Earn()
//
// It is pure and lock-free: no clock, no goroutine.
package budget
