package materpc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ErrorKind says what happened to a call, in Kitex's classes made precise. It
// is decided at this hop and never travels inside a status, where a relay
// would forward it. An ErrorKind is itself an error, so that
//
//	errors.Is(err, materpc.ServerRefused)
//
// asks the same as KindOf(err) == materpc.ServerRefused.
type ErrorKind uint8

// The kinds. What each means for moves and for blame is told by [ErrorKind.Movable]
// and [ErrorKind.Charged].
const (
	// NoError is the kind of a nil error.
	NoError ErrorKind = iota
	// ServerRefused: the peer refused before user code ran (draining,
	// overloaded, stream refused, GOAWAY whose last stream is below ours).
	ServerRefused
	// GetConnection: never sent, there was no connection to the instance.
	GetConnection
	// InstanceCircuitBreak: this client's breaker for the instance is open.
	// Breakers come with a policy; without one this kind does not occur.
	InstanceCircuitBreak
	// ServiceCircuitBreak: the breaker of the method is open; as above.
	ServiceCircuitBreak
	// ServiceDiscovery: discovery could not be read, nothing to pick from.
	ServiceDiscovery
	// NoInstance: discovery answered and left nothing to pick from.
	NoInstance
	// ServerDraining: a shutdown aborted the running handler.
	ServerDraining
	// ConnectionLost: the connection ended after the request may have run.
	ConnectionLost
	// RPCTimeout: materpc's own timeout fired.
	RPCTimeout
	// TimeoutByBusiness: the caller's deadline passed.
	TimeoutByBusiness
	// CanceledByBusiness: the caller cancelled.
	CanceledByBusiness
	// Overlimit: a caller's quota, a limit of this client, or a limit reported
	// by a peer without our gate.
	Overlimit
	// ACL: an access rule said no. Without a rule this kind does not occur.
	ACL
	// Biz: a business error, see [BizError].
	Biz
	// Panic: user code panicked.
	Panic
	// RemoteOrNetwork: the peer, or something behind it, failed.
	RemoteOrNetwork
	// Local: refused by our own grpc-go before sending: credentials, header
	// list, charset, compressor, message size.
	Local

	kinds // their number
)

type kindFacts struct {
	name    string
	reason  string // the Kratos reason of errors made here
	code    codes.Code
	movable bool
	charged bool
}

// facts is the table of kinds. Overload refusals are
// charged by whoever saw the reason; the kind alone does not tell.
func (k ErrorKind) facts() kindFacts {
	table := [kinds]kindFacts{
		NoError:              {name: "NoError"},
		ServerRefused:        {"ServerRefused", "SERVER_REFUSED", codes.Unavailable, true, false},
		GetConnection:        {"GetConnection", "GET_CONNECTION", codes.Unavailable, true, true},
		InstanceCircuitBreak: {"InstanceCircuitBreak", "CIRCUITBREAKER", codes.Unavailable, true, false},
		ServiceCircuitBreak:  {"ServiceCircuitBreak", "CIRCUITBREAKER", codes.Unavailable, false, false},
		ServiceDiscovery:     {"ServiceDiscovery", "SERVICE_DISCOVERY", codes.Unavailable, false, false},
		NoInstance:           {"NoInstance", "NO_INSTANCE", codes.Unavailable, false, false},
		ServerDraining:       {"ServerDraining", "SERVER_DRAINING", codes.Unavailable, false, true},
		ConnectionLost:       {"ConnectionLost", "CONNECTION_LOST", codes.Unavailable, false, true},
		RPCTimeout:           {"RPCTimeout", "RPC_TIMEOUT", codes.DeadlineExceeded, false, true},
		TimeoutByBusiness:    {"TimeoutByBusiness", "DEADLINE_EXCEEDED", codes.DeadlineExceeded, false, false},
		CanceledByBusiness:   {"CanceledByBusiness", "CANCELED", codes.Canceled, false, false},
		Overlimit:            {"Overlimit", "RATELIMIT", codes.ResourceExhausted, false, true},
		ACL:                  {"ACL", "ACL", codes.PermissionDenied, false, false},
		Biz:                  {"Biz", "BIZ", codes.Internal, false, false},
		Panic:                {"Panic", "PANIC", codes.Internal, false, true},
		RemoteOrNetwork:      {"RemoteOrNetwork", "REMOTE", codes.Unknown, false, true},
		Local:                {"Local", "LOCAL", codes.Internal, false, false},
	}
	if k >= kinds {
		return kindFacts{name: "ErrorKind(?)", code: codes.Unknown}
	}
	return table[k]
}

// String returns the kind's name, "ServerRefused".
func (k ErrorKind) String() string { return k.facts().name }

// Error makes a kind a target of errors.Is. Its text, for a kind that is
// returned as an error, names the module: "materpc: ServerRefused".
func (k ErrorKind) Error() string { return "materpc: " + k.String() }

// Format implements fmt.Formatter: %v, %s and %q print the name, where fmt
// would call Error. A kind is mostly printed beside the error it belongs to.
func (k ErrorKind) Format(f fmt.State, verb rune) {
	layout := fmt.FormatString(f, verb)
	if strings.ContainsRune("vsq", verb) {
		_, _ = fmt.Fprintf(f, layout, k.String()) // fmt has no place for this error
		return
	}
	_, _ = fmt.Fprintf(f, layout, uint8(k))
}

// LogValue implements slog.LogValuer: a log's attribute is the name.
func (k ErrorKind) LogValue() slog.Value { return slog.StringValue(k.String()) }

// Reason returns the Kratos reason that errors of this kind carry when they
// are made at this hop.
func (k ErrorKind) Reason() string { return k.facts().reason }

// Code returns the gRPC code of an error of this kind made at this hop.
func (k ErrorKind) Code() codes.Code { return k.facts().code }

// Movable reports whether a call that failed so may go to another instance
// without a policy: only where this hop knows that no user code ran.
func (k ErrorKind) Movable() bool { return k.facts().movable }

// Charged reports whether failures of this kind speak against the instance. Of
// what a peer answered itself ([RemoteOrNetwork], [Overlimit]) only server faults
// do: its gRPC code decides that, see selector.OutcomeOf.
func (k ErrorKind) Charged() bool { return k.facts().charged }

// KindOf answers what happened. An error that materpc returned knows its kind;
// any other is classified by what it is: a context error is the caller's, a
// [BizError] is Biz, a plain status or error is RemoteOrNetwork. KindOf(nil)
// is NoError.
func KindOf(err error) ErrorKind {
	if err == nil {
		return NoError
	}
	var e *Error
	if errors.As(err, &e) {
		return e.kind
	}
	var kind ErrorKind
	if errors.As(err, &kind) {
		return kind
	}
	if _, ok := BizErrorOf(err); ok {
		return Biz
	}
	switch {
	case errors.Is(err, context.Canceled):
		return CanceledByBusiness
	case errors.Is(err, context.DeadlineExceeded):
		return TimeoutByBusiness
	}
	if s, ok := status.FromError(err); ok && s.Code() == codes.OK {
		return NoError
	}
	return RemoteOrNetwork
}
