package materpc

import (
	"context"
	"time"
)

// Recorder is the writing side of an [RPCInfo], for transports: a transport
// embeds one in its record of a call, so that both are one allocation. User
// code sees the embedded RPCInfo only.
type Recorder struct {
	RPCInfo
}

// Call is what a transport knows when a call begins.
type Call struct {
	Side       Side
	Shape      Shape
	FullMethod string
	From       string // what a client calls itself (WithName); not read on a server, where the caller's header counts
	To         string // the destination on a client, the name of the own app on a server
}

// Begin writes what never changes. It is called once, before the record is
// shared.
func (r *Recorder) Begin(parent context.Context, call Call, start time.Time) {
	r.parent = parent
	r.side, r.shape = call.Side, call.Shape
	r.fullMethod, r.from, r.to = call.FullMethod, call.From, call.To
	r.start = start
}

// Outer returns the ctx that the call was made with.
func (r *Recorder) Outer() context.Context { return r.parent }

// AddAttempt counts an attempt and returns its ordinal, the first being 1.
func (r *Recorder) AddAttempt() int { return int(r.attempts.Add(1)) }

// AddMove counts a move and returns how many there have been.
func (r *Recorder) AddMove() int { return int(r.moves.Add(1)) }

// SetPeer publishes the instance picked.
func (r *Recorder) SetPeer(p *Peer) { r.peer.Store(p) }

// Finish ends the call with err, once: the first caller wins and runs the
// finish hooks, a later one gets false.
func (r *Recorder) Finish(err error) bool {
	if !r.state.CompareAndSwap(running, finishing) {
		return false
	}
	r.err = err
	r.elapsed = time.Since(r.start)
	r.state.Store(finished)
	if h := r.hooks.Load(); h != nil {
		taken := h.takeFinish()
		for i := len(taken) - 1; i >= 0; i-- {
			guard(func() { taken[i](err) })
		}
	}
	return true
}

// HasAfter reports whether the call has registered functions with [After].
func (r *Recorder) HasAfter() bool { return r.hooks.Load() != nil }

// RunAfter runs what [After] registered, in order, each guarded, until nothing
// is left, and then takes no more. ctx is the call's, whose values they see
// without its deadline or cancel. The transport calls it once the response is
// out and holds the call's permit meanwhile.
func (r *Recorder) RunAfter(ctx context.Context) {
	h := r.hooks.Load()
	if h == nil {
		return
	}
	detached := context.WithoutCancel(ctx)
	for taken := h.takeAfter(); len(taken) > 0; taken = h.takeAfter() {
		for _, fn := range taken {
			guard(func() { fn(detached) })
		}
	}
}
