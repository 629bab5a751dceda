package shield

import "time"

// Event is something that a shield decided. It is a value: an observer may keep
// it.
type Event struct {
	Type   EventType
	Shield string
	Layer  string // the layer's text
	// Attempt is the number of the attempt that is due (Retrying, Hedging) or
	// ended; 1 is the first.
	Attempt int
	// Delay is how long the layer waits before that attempt, or how long a
	// timeout was.
	Delay time.Duration
	// From and To are breaker states (Transition).
	From, To string
	Err      error
}

// EventType names an event.
type EventType string

// Events of shields.
const (
	Retrying   EventType = "retrying"   // before the wait
	GaveUp     EventType = "gave_up"    // a handled failure is not retried; Err tells it
	Hedging    EventType = "hedging"    // another attempt starts beside the running ones
	Expired    EventType = "expired"    // a timeout layer ended the work
	Refused    EventType = "refused"    // Err is the *Rejected
	Transition EventType = "transition" // of a breaker
	FellBack   EventType = "fell_back"
	Injected   EventType = "injected" // chaos
)

// Observe has fn told of everything that the layers of this shield decide, those
// of shields used as layers included, but for transitions: a breaker tells only
// the observers of the shield that it was made for. fn runs on the path of the call and must
// not block; a panic of it is contained. It may be called concurrently.
func Observe(fn func(Event)) Layer { return observer{fn} }

type observer struct{ fn func(Event) }

func (o observer) plan(p *planner) {
	if o.fn == nil {
		p.fault("Observe", "fn", nil, "give a function")
		return
	}
	p.observers = append(p.observers, o.fn)
}

// observers are told of events, each guarded.
type observers []func(Event)

func (list observers) emit(e Event) {
	for _, fn := range list {
		tell(fn, e)
	}
}

func tell(fn func(Event), e Event) {
	defer func() { _ = recover() }() // a broken observer must not break the call
	fn(e)
}
