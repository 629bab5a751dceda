package grpc

import (
	"time"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
)

// Reasons of a [Refusal], as callers with materpc read them.
const (
	// ReasonOverloaded: this instance is at its limit; the caller goes
	// elsewhere, once.
	ReasonOverloaded = wire.Overloaded
	// ReasonLimited: this caller is at its quota; another instance would say
	// the same, so the call does not move.
	ReasonLimited = wire.Limited
)

// Admission decides before a message is decoded whether a call may run. It is
// asked concurrently and must not block. A panic refuses the call as Internal.
type Admission interface {
	// Admit returns the permit of an admitted call, nil when there is nothing
	// to give back, or a refusal.
	Admit(info *materpc.RPCInfo) (Permit, *Refusal)
}

// Permit is what an admitted call holds. An admission without state per call
// may be its own permit.
type Permit interface {
	// Release is called exactly once, when the call's work has settled: the
	// handler has returned, also after its deadline, and the functions of
	// [materpc.After] have run. The call has its result by then.
	Release(info *materpc.RPCInfo)
}

// Refusal is why a call may not run. It must not be changed once returned, so
// that one value can serve all calls.
type Refusal struct {
	// Reason is one of the Reason constants. Empty refuses without a proof:
	// the caller sees nothing but Err.
	Reason string
	// Err is the answer; nil is ResourceExhausted with Kratos's reason RATELIMIT.
	Err error
	// Pushback is sent as grpc-retry-pushback-ms: how long the caller should
	// wait before a retry. 0 sends nothing, a negative one forbids retries.
	Pushback time.Duration
}

// The answers of the server itself.
var (
	errDraining   = materpc.Errorf(materpc.ServerRefused, "the server is draining")
	errOverloaded = refusalError(materpc.ServerRefused, "the server is overloaded")
	errLimited    = refusalError(materpc.Overlimit, "the caller is over its limit")
	errAdmission  = materpc.Errorf(materpc.Panic, "an admission of the server panicked")
)

// refusalError has the code of a limit and Kratos's reason for it, whatever
// the kind.
func refusalError(kind materpc.ErrorKind, message string) error {
	s := status.New(codes.ResourceExhausted, message)
	if detailed, err := s.WithDetails(&errdetails.ErrorInfo{Reason: materpc.Overlimit.Reason()}); err == nil {
		s = detailed
	}
	return materpc.Classified(kind, s.Err(), nil)
}

// err returns the answer to the caller.
func (r *Refusal) err() error {
	switch {
	case r.Err != nil:
		return r.Err
	case r.Reason == ReasonOverloaded:
		return errOverloaded
	}
	return errLimited
}

// permits are what a call holds: one inline, since most servers have no more.
type permits struct {
	first Permit
	more  []Permit
}

func (p *permits) add(permit Permit) {
	switch {
	case permit == nil:
	case p.first == nil:
		p.first = permit
	default:
		p.more = append(p.more, permit)
	}
}

// release gives all back, the last first.
func (p *permits) release(info *materpc.RPCInfo) {
	for i := len(p.more) - 1; i >= 0; i-- {
		guard(func() { p.more[i].Release(info) })
	}
	if p.first != nil {
		guard(func() { p.first.Release(info) })
	}
}
