package shield

import (
	"fmt"
	"math"
	"math/rand/v2"
	"time"
)

// Backoff says how long to wait before a retry. Implementations are comparable
// values, safe for concurrent use, and do not block.
type Backoff interface {
	Delay(Try) time.Duration
	fmt.Stringer
}

// Try is the try that failed, as a Backoff sees it.
type Try struct {
	Retry    int           // 1 for the first retry
	Previous time.Duration // the delay before the failed try, 0 at first
	Outcome  Outcome
}

// Jitter spreads delays, so that callers that failed together do not come back
// together.
type Jitter uint8

const (
	// EqualJitter takes 0.5 to 1.5 of the curve.
	EqualJitter Jitter = iota
	// NoJitter takes the curve as it is.
	NoJitter
	// FullJitter takes 0 to 1 of the curve.
	FullJitter
	// DecorrelatedJitter takes the base to three times the delay before.
	DecorrelatedJitter
)

func (j Jitter) String() string {
	return [...]string{"equal", "no", "full", "decorrelated"}[min(j, DecorrelatedJitter)]
}

// Curve is a Backoff that grows. The names and ranges of jitter are those of
// https://aws.amazon.com/blogs/architecture/exponential-backoff-and-jitter/ and
// of Kevlar.
type Curve struct {
	Base   time.Duration // of the first retry
	Factor float64       // each retry is so many times the one before; 1 is constant
	Step   time.Duration // and so much longer
	Max    time.Duration // of the curve, before jitter; 0 means 30 s
	Jitter Jitter
}

const defaultMaxDelay = 30 * time.Second

// Exponential doubles from base, up to 30 s, with equal jitter.
func Exponential(base time.Duration) Curve { return Curve{Base: base, Factor: 2} }

// Linear grows by step, up to 30 s, with equal jitter.
func Linear(step time.Duration) Curve { return Curve{Base: step, Factor: 1, Step: step} }

// Constant is always the same delay.
func Constant(delay time.Duration) Curve {
	return Curve{Base: delay, Factor: 1, Max: delay, Jitter: NoJitter}
}

// Delay implements [Backoff].
func (c Curve) Delay(t Try) time.Duration {
	limit := c.limit()
	if c.Jitter == DecorrelatedJitter {
		high := min(saturated(3*float64(max(t.Previous, c.Base))), limit)
		return min(c.Base, limit) + spread(high-c.Base)
	}
	n := float64(max(t.Retry, 1) - 1)
	curve := min(saturated(float64(c.Base)*math.Pow(max(c.Factor, 1), n)+float64(c.Step)*n), limit)
	switch c.Jitter {
	case EqualJitter:
		return curve/2 + spread(curve)
	case FullJitter:
		return spread(curve)
	}
	return curve
}

func (c Curve) limit() time.Duration {
	if c.Max > 0 {
		return c.Max
	}
	return defaultMaxDelay
}

// String describes the curve.
func (c Curve) String() string {
	text := c.Base.String()
	switch {
	case c.Step > 0:
		text += fmt.Sprintf(" +%v", c.Step)
	case c.Factor > 1:
		text += fmt.Sprintf(" x%v", c.Factor)
	default:
		return text
	}
	return text + fmt.Sprintf(" <=%v, %v jitter", c.limit(), c.Jitter)
}

func (c Curve) faults() (field string, value any, remedy string) {
	switch {
	case c.Base < 0:
		return "Backoff.Base", c.Base, "give 0 or more"
	case c.Step < 0:
		return "Backoff.Step", c.Step, "give 0 or more"
	case c.Max < 0:
		return "Backoff.Max", c.Max, "give 0 for 30s, or more"
	case c.Factor < 0 || c.Factor != c.Factor || math.IsInf(c.Factor, 0) || c.Factor > 0 && c.Factor < 1:
		return "Backoff.Factor", c.Factor, "give 1 or more"
	case c.Jitter > DecorrelatedJitter:
		return "Backoff.Jitter", uint8(c.Jitter), "give one of the constants"
	}
	return "", nil, ""
}

// spread returns a random duration in [0, d).
func spread(d time.Duration) time.Duration {
	if d <= 0 {
		return 0
	}
	return rand.N(d)
}

// saturated makes a duration of what may be too large for one, or no number.
func saturated(nanoseconds float64) time.Duration {
	if nanoseconds >= math.MaxInt64 || nanoseconds != nanoseconds {
		return math.MaxInt64
	}
	return time.Duration(nanoseconds)
}
