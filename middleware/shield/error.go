package shield

import (
	"fmt"
	"time"
)

// Reason says why a layer refused.
type Reason uint8

const (
	// BreakerOpen says that the breaker is open, or half-open with all probes out.
	BreakerOpen Reason = iota + 1
	// Isolated says: somebody closed the way by hand, see [Shield.Isolate].
	Isolated
	// RateLimited says: no permit in time.
	RateLimited
	// ConcurrencyLimited says: no slot, and no room in the queue.
	ConcurrencyLimited
	// QueueTimeout says: waited in the queue as long as the layer allows.
	QueueTimeout
	// QueueEvicted says: a call of higher priority took the place in the queue.
	QueueEvicted
	// Throttled says: turned away by chance, since too many calls fail.
	Throttled
)

func (r Reason) String() string {
	names := [...]string{"", "breaker open", "isolated", "rate limited", "concurrency limited", "queue timeout", "queue evicted", "throttled"}
	if int(r) < len(names) && r > 0 {
		return names[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// Rejected is the error of a call that a layer refused: the work did not run.
type Rejected struct {
	Shield string
	Layer  string // the layer's text
	Reason Reason
	// RetryAfter is when to try again, 0 when nobody knows.
	RetryAfter time.Duration
	// Note is what [Shield.Isolate] was given.
	Note string
}

func (e *Rejected) Error() string {
	text := fmt.Sprintf("shield %s: %s refused the call: %s", e.Shield, e.Layer, e.Reason)
	if e.Note != "" {
		text += " (" + e.Note + ")"
	}
	if e.RetryAfter > 0 {
		text += fmt.Sprintf(", try again in %v", e.RetryAfter)
	}
	return text
}

// Is makes errors.Is(err, &Rejected{Reason: r}) ask for a reason, and with no
// reason for any rejection.
func (e *Rejected) Is(target error) bool {
	t, ok := target.(*Rejected)
	return ok && (t.Reason == 0 || t.Reason == e.Reason)
}

// TimedOut is the error of work that a [Timeout] layer ended.
type TimedOut struct {
	Shield string
	After  time.Duration
	// Cause is what the work returned, which errors.Is and errors.As see too.
	Cause error
}

func (e *TimedOut) Error() string {
	text := fmt.Sprintf("shield %s: timed out after %v", e.Shield, e.After)
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *TimedOut) Unwrap() error { return e.Cause }

// Timeout reports true, as net.Error has it.
func (e *TimedOut) Timeout() bool { return true }
