package materpc

import "context"

// EventType names what an [Event] tells.
type EventType uint8

// The events. RPCStart and RPCFinish happen exactly once a call, refused calls
// included; the others as often as the thing they name.
const (
	// RPCStart: a logical call began.
	RPCStart EventType = iota
	// RPCFinish: it ended; Err is what it returned.
	RPCFinish
	// Move: a try was refused or never sent, and the call goes to another
	// instance (or another connection) by itself. Kind says why.
	Move
	// Refusal: this server's gate refused the call; Detail is the reason.
	Refusal
	// ProofMismatch: a refusal proof carried our nonce but another instance's id.
	ProofMismatch
	// Ungoverned: a call reached the balancer without materpc's state.
	Ungoverned
	// InstanceDraining: an instance proved that it drains and left the pick set.
	InstanceDraining
	// HandlerAborted: a shutdown ended a running handler.
	HandlerAborted
	// HandlerPanic: a handler or middleware panicked; Err holds value and stack.
	HandlerPanic
	// UnknownMethod: a call named a method that is not registered.
	UnknownMethod
	// RecordSkipped: discovery published an instance that cannot be used.
	RecordSkipped
	// Discovery: the state of discovery itself changed, for instance it cannot
	// be read and the last good list stays. Detail tells what.
	Discovery
	// MovesDisabled: grpc-go's texts are not the ones we know, so nothing but
	// a gate's proof moves a call.
	MovesDisabled

	eventTypes // their number
)

// String returns the event's name.
func (t EventType) String() string {
	names := [eventTypes]string{
		"rpc_start", "rpc_finish", "move", "refusal", "proof_mismatch", "ungoverned", "instance_draining",
		"handler_aborted", "handler_panic", "unknown_method", "record_skipped", "discovery", "moves_disabled",
	}
	if t >= eventTypes {
		return "event(?)"
	}
	return names[t]
}

// Event is one thing that governance did or saw. Fields that do not apply are
// zero; Info is nil for events outside a call.
type Event struct {
	Type   EventType
	Info   *RPCInfo
	Peer   *Peer
	Kind   ErrorKind
	Err    error
	Detail string
}

// EventHandler receives events on the goroutine that caused them, concurrently
// for different calls. It must not block; a panic is recovered and dropped.
type EventHandler func(Event)

// Tracer sees a call from its start to its finish. Start may return a derived
// ctx, which the rest of the call then uses; Finish gets that ctx. Both are
// called exactly once a call, from one goroutine each; a panic is recovered
// and dropped.
type Tracer interface {
	Start(ctx context.Context) context.Context
	Finish(ctx context.Context)
}
