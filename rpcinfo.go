package materpc

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"time"

	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"

	"github.com/materpc/materpc/internal/wire"
)

// Peer is an instance at the other end of a call.
type Peer struct {
	ID      string // instance id, empty where discovery knows none
	Service string
	Address string
}

// RPCInfo describes one logical call: what it is, between whom, and how it
// goes. It is created once a call and never pooled, so it may be kept; what is
// known at the start is written once, the rest is atomic. It is the context
// node of its call as well. All methods are safe for concurrent use.
type RPCInfo struct {
	parent     context.Context
	fullMethod string
	from       string
	to         string
	start      time.Time
	side       Side
	shape      Shape

	attempts atomic.Int32
	moves    atomic.Int32
	peer     atomic.Pointer[Peer]
	state    atomic.Uint32 // running, finishing, finished
	hooks    atomic.Pointer[hooks]

	elapsed time.Duration // valid once finished
	err     error         // valid once finished
}

const (
	running uint32 = iota
	finishing
	finished
)

type infoKey struct{}

// FromContext returns the call that ctx belongs to: in a handler the inbound
// call, in a client middleware the outbound one.
func FromContext(ctx context.Context) (*RPCInfo, bool) {
	info, ok := ctx.Value(infoKey{}).(*RPCInfo)
	return info, ok
}

// Deadline implements context.Context.
func (r *RPCInfo) Deadline() (time.Time, bool) { return r.parent.Deadline() }

// Done implements context.Context.
func (r *RPCInfo) Done() <-chan struct{} { return r.parent.Done() }

// Err implements context.Context. How the call ended is told by [RPCInfo.Result].
func (r *RPCInfo) Err() error { return r.parent.Err() }

// Value implements context.Context.
func (r *RPCInfo) Value(key any) any {
	if key == (infoKey{}) {
		return r
	}
	return r.parent.Value(key)
}

// Parent returns the call within which this one was made, for instance the
// inbound call of the handler that made an outbound one.
func (r *RPCInfo) Parent() (*RPCInfo, bool) { return FromContext(r.parent) }

// Side tells which end of the call this is.
func (r *RPCInfo) Side() Side { return r.side }

// Shape returns the shape of the method.
func (r *RPCInfo) Shape() Shape { return r.shape }

// FullMethod returns "/package.Service/Method".
func (r *RPCInfo) FullMethod() string { return r.fullMethod }

// Service returns "package.Service".
func (r *RPCInfo) Service() string {
	name := strings.TrimPrefix(r.fullMethod, "/")
	if i := strings.LastIndexByte(name, '/'); i >= 0 {
		return name[:i]
	}
	return ""
}

// Method returns "Method".
func (r *RPCInfo) Method() string {
	return r.fullMethod[strings.LastIndexByte(r.fullMethod, '/')+1:]
}

// From returns the calling service's name: on a client what it was made with
// (WithName in transport/grpc; empty without), on a server what the caller's
// header says, empty for a caller without materpc. Nobody has proved it; see
// [RPCInfo.Identity] for what is proved.
func (r *RPCInfo) From() string {
	if r.side == ClientSide {
		return r.from
	}
	header, _ := r.Header()
	return header.Caller
}

// Header is what a caller with materpc says of itself. None of it is proved.
type Header struct {
	Caller string // the calling service's name
	Nonce  string // names the calling client; what refuses a call echoes it
	Cohort string // empty without one
}

// Header returns materpc's own request header of an inbound call; false for a
// caller without materpc, a malformed header, and on a client. The last value
// counts: a relay that forwards inherited metadata sends the header twice.
func (r *RPCInfo) Header() (Header, bool) {
	values := metadata.ValueFromIncomingContext(r.parent, wire.HeaderKey)
	if r.side != ServerSide || len(values) == 0 {
		return Header{}, false
	}
	header, ok := wire.ParseHeader(values[len(values)-1])
	return Header(header), ok
}

// To returns the called service's name: on a client the destination (the name
// in its target, or WithDestination), on a server the name of its own app.
func (r *RPCInfo) To() string { return r.to }

// Start returns when the call began.
func (r *RPCInfo) Start() time.Time { return r.start }

// Elapsed returns how long the call took, or has taken so far.
func (r *RPCInfo) Elapsed() time.Duration {
	if r.state.Load() == finished {
		return r.elapsed
	}
	return time.Since(r.start)
}

// Attempts returns how many attempts have begun. Moves are no attempts.
func (r *RPCInfo) Attempts() int { return int(r.attempts.Load()) }

// Moves returns how often the call went to another instance by itself.
func (r *RPCInfo) Moves() int { return int(r.moves.Load()) }

// Peer returns the other end: on a client the instance picked last, on a
// server the address that called.
func (r *RPCInfo) Peer() Peer {
	if p := r.peer.Load(); p != nil {
		return *p
	}
	if p, ok := peer.FromContext(r.parent); ok && r.side == ServerSide && p.Addr != nil {
		return Peer{Address: p.Addr.String()}
	}
	return Peer{}
}

// Identity returns what the caller's verified TLS certificate proves: its
// SPIFFE id (the first URI), else its first DNS name, else its common name. It
// is empty for a caller without one.
func (r *RPCInfo) Identity() string {
	p, ok := peer.FromContext(r.parent)
	if !ok || r.side != ServerSide {
		return ""
	}
	info, ok := p.AuthInfo.(credentials.TLSInfo)
	if !ok || len(info.State.VerifiedChains) == 0 || len(info.State.VerifiedChains[0]) == 0 {
		return ""
	}
	leaf := info.State.VerifiedChains[0][0]
	switch {
	case len(leaf.URIs) > 0:
		return leaf.URIs[0].String()
	case len(leaf.DNSNames) > 0:
		return leaf.DNSNames[0]
	}
	return leaf.Subject.CommonName
}

// Result returns the error that the call ended with; false while it runs.
func (r *RPCInfo) Result() (error, bool) { //nolint:revive // the comma-ok form reads better than error last
	if r.state.Load() != finished {
		return nil, false
	}
	return r.err, true
}

// OnFinish runs fn once when the call finishes, on the goroutine that finishes
// it, in reverse order of registration; at once when it has finished. A panic
// of fn is recovered and dropped.
func (r *RPCInfo) OnFinish(fn func(error)) {
	if !r.list().addFinish(fn) {
		guard(func() { fn(r.err) })
	}
}

// ErrNoCall is the answer of [After] when ctx belongs to no inbound call, or
// to one that has ended.
var ErrNoCall = errors.New("materpc: the ctx belongs to no running inbound call")

// After runs fn once after the response of the inbound call of ctx has gone
// out, also after an error, a panic or a cancel, with a ctx that keeps the
// call's values but neither its deadline nor its cancel. The call's permit and
// a drain wait for fn, the reply does not. It returns [ErrNoCall], without
// running fn, when there is no such call.
func After(ctx context.Context, fn func(context.Context)) error {
	info, ok := FromContext(ctx)
	for ok && info.side != ServerSide {
		info, ok = info.Parent()
	}
	if !ok || !info.list().addAfter(fn) {
		return ErrNoCall
	}
	return nil
}
