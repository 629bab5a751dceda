package materpc

import "context"

// EventType names what an [Event] tells.
type EventType uint8

// The events. RPCStart and RPCFinish happen exactly once a call, refused calls
// included; the others as often as the thing they name. Brackets list the
// fields that are set beside Type.
const (
	// RPCStart: a logical call began. [Info]
	RPCStart EventType = iota
	// RPCFinish: it ended; Err is what it returned, nil after a success, and
	// Kind its kind. Info.Peer tells the instance. On a server that is what the
	// handler returned: a reply that grpc-go then cannot send, for its size or its
	// connection, is known to the caller alone. [Info, Kind, Err]
	RPCFinish
	// Move: a try was refused or never sent, and the call goes to another
	// instance (or another connection) by itself. Peer is the instance that it
	// leaves, Kind and Err say why. [Info, Peer, Kind, Err]
	Move
	// Refusal: this server's gate refused the call; Detail is the reason.
	// [Info, Kind, Err, Detail] A connection beyond the server's bound is one
	// too, outside a call: Detail is "connections". [Peer, Kind, Detail]
	Refusal
	// ProofMismatch: a refusal proof carried our nonce but another instance's
	// id, which is Detail; Peer is the one that was called. [Info, Peer, Detail]
	ProofMismatch
	// Ungoverned: a call reached the balancer without materpc's state; Detail
	// is its full method. [Detail]
	Ungoverned
	// InstanceDraining: an instance proved that it drains and left the pick
	// set. Info is the call that met it. [Info, Peer]
	InstanceDraining
	// HandlerAborted: a shutdown ended a running handler; Detail is the full
	// method. [Info, Kind, Err, Detail]
	HandlerAborted
	// HandlerPanic: a handler or middleware panicked; Err holds value and stack
	// (*PanicError in transport/grpc), Detail is the full method.
	// [Info, Kind, Err, Detail]
	HandlerPanic
	// UnknownMethod: a call named a method that is not registered, Detail.
	// [Info, Detail]
	UnknownMethod
	// RecordSkipped: discovery published an instance that cannot be used;
	// Detail names it. [Err, Detail]
	RecordSkipped
	// Discovery: the state of discovery itself changed, for instance it cannot
	// be read and the last good list stays. Detail tells what; Err is nil when
	// nothing failed. [Err, Detail]
	Discovery
	// MovesDisabled: grpc-go's texts are not the ones we know, so nothing but
	// a gate's proof moves a call. Detail is grpc-go's version. [Detail]
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

// Event is one thing that governance did or saw. Which fields are set is told at
// each type; the others are zero.
type Event struct {
	Type   EventType
	Info   *RPCInfo  // the call; nil outside one
	Peer   *Peer     // the other end; only to be read
	Kind   ErrorKind // of Err, where there is one
	Err    error
	Detail string // for people, except where a type says what it is
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
