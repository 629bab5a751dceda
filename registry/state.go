package registry

import "fmt"

// State is where a Registration stands. Withdrawn, Failed and Replaced are
// terminal: nothing leads out of them, whatever answers come late.
//
//	Idle         start ▶ Registering    withdraw ▶ Withdrawn*
//	Registering  landed ▶ Registered    refuted ▶ Failed*
//	             unanswered ▶ Unconfirmed    withdraw ▶ Withdrawing
//	Registered   withdraw ▶ Withdrawing    replaced ▶ Replaced*
//	Unconfirmed  withdraw ▶ Withdrawing    refuted ▶ Failed*    gone ▶ Withdrawn*
//	Withdrawing  gone ▶ Withdrawn*    refuted ▶ Failed*    lost ▶ Unconfirmed
type State int

// The states.
const (
	// Idle: nothing was written.
	Idle State = iota
	// Registering: the write is under way.
	Registering
	// Registered: the record is there and kept alive by the backend.
	Registered
	// Unconfirmed: nobody knows whether the record is there.
	Unconfirmed
	// Withdrawing: the deregistration is under way.
	Withdrawing
	// Withdrawn: the record is gone. Terminal.
	Withdrawn
	// Failed: the record was not written, or the write was undone. Terminal.
	Failed
	// Replaced: a newer generation has the record. Terminal.
	Replaced
)

var stateNames = [...]string{"idle", "registering", "registered", "unconfirmed", "withdrawing", "withdrawn", "failed", "replaced"}

// String returns the state in a word.
func (s State) String() string {
	if s < 0 || int(s) >= len(stateNames) {
		return fmt.Sprintf("state %d", int(s))
	}
	return stateNames[s]
}

// Terminal says whether the state is final.
func (s State) Terminal() bool { return s == Withdrawn || s == Failed || s == Replaced }

// step is something that happened to a registration.
type step int

const (
	start      step = iota // Register was called
	landed                 // the record is there
	refuted                // the record is not there, or was taken away again
	unanswered             // the write has no answer, and there is no way to find out
	withdraw               // Deregister was called
	gone                   // the record is away
	lost                   // the removal has no answer, and there is no way to find out
	replaced               // the next generation has landed
)

// transitions is the whole machine: what is missing does not happen.
var transitions = map[State]map[step]State{
	Idle:        {start: Registering, withdraw: Withdrawn},
	Registering: {landed: Registered, refuted: Failed, unanswered: Unconfirmed, withdraw: Withdrawing},
	Registered:  {withdraw: Withdrawing, replaced: Replaced},
	Unconfirmed: {withdraw: Withdrawing, refuted: Failed, gone: Withdrawn},
	Withdrawing: {gone: Withdrawn, refuted: Failed, lost: Unconfirmed},
}

// after returns the state after a step, and whether the step applies at all.
func (s State) after(what step) (State, bool) {
	next, ok := transitions[s][what]
	if !ok {
		return s, false
	}
	return next, true
}
