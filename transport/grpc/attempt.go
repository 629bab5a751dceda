package grpc

import (
	"context"
	"slices"

	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// attempt is what one attempt of a call leaves behind: what the picker chose,
// what grpc-go reported. Picks and Dones of one attempt follow each other, so
// it needs no lock; see clientStream for streams.
type attempt struct {
	call    *clientCall
	request selector.Request // in the record, or each pick would allocate one
	barred  *selector.Tried  // instances that refused the call themselves
	pick    pick
	facts   facts
	moves   moveState
	sealed  context.Context // what its tries are sent with
	waited  bool            // a pick had to wait, so the call's start is no pick time
	asks    uint8           // how often its filters have seen the sleeping instances of
	asked   uint32          // this list
}

type attemptKey struct{}

// pick is the instance in use.
type pick struct {
	instance   *instance
	connection uint32 // which of the instance's connections
	began      int64
	load       selector.Load
	open       bool // Begin without End
	failure    materpc.ErrorKind
	cause      error
}

// facts are what Done delivered for the last pick of a try: facts, never the
// outcome.
type facts struct {
	picked   bool // an instance was picked
	ended    bool // so that grpc-go may try again by itself
	sent     bool // a stream was created
	received bool
	trailer  metadata.MD
}

// fresh forgets the facts of the try before, so that one that ends before its
// pick is not judged by them.
func (a *attempt) fresh() {
	a.facts = facts{}
	a.pick.failure, a.pick.cause = materpc.NoError, nil
}

// begin notes a pick.
func (a *attempt) begin(in *instance, now int64) {
	a.settle(selector.Neutral, now)
	if a.moves.replayed != materpc.NoError {
		a.moved(a.pick.instance, a.moves.replayed, nil)
		a.moves.replayed = materpc.NoError
	}
	load := selector.Unary
	if a.call.desc != nil {
		load = selector.Stream
	}
	a.pick = pick{instance: in, connection: in.connection.Load(), began: now, load: load, open: true}
	a.facts = facts{picked: true}
	in.node.Begin(now, load)
	a.call.SetPeer(&in.peer)
	a.call.peer.Node = in.kratos
}

// pickTime is the time of a pick on the client's clock: the call's start as
// long as that is fresh, which saves a clock read. Code of users in between takes
// the time it likes.
func (a *attempt) pickTime() int64 {
	if a.waited || a.call.client.layered || a.moves.count > 0 || a.pick.instance != nil {
		return a.call.client.now()
	}
	return int64(a.call.Start().Sub(a.call.client.epoch))
}

// failed notes that a pick found nothing, and why.
func (a *attempt) failed(kind materpc.ErrorKind, cause error) {
	a.settle(selector.Neutral, a.call.client.now())
	a.pick = pick{instance: a.pick.instance, failure: kind, cause: cause}
	a.waited = true // a call that waits for READY picks again
	a.facts = facts{}
}

// done is the balancer's Done.
func (a *attempt) done(info balancer.DoneInfo) {
	a.facts = facts{
		picked: true, ended: replayable(info),
		sent: info.BytesSent, received: info.BytesReceived, trailer: info.Trailer,
	}
	if !info.BytesSent {
		a.settle(selector.Neutral, a.pick.began)
	}
}

// replayable reports whether grpc-go may go on by itself after such an end: no
// stream could be created, or it was not processed (csAttempt.shouldRetry).
// A pick after any other end is an interceptor's that repeats the try, and
// one after a Done that says nothing follows a connection that was not READY.
func replayable(info balancer.DoneInfo) bool {
	s := status.Convert(info.Err)
	if !info.BytesSent {
		return s.Code() == codes.Unavailable
	}
	return !info.BytesReceived && (info.Err == nil || slices.Contains(unprocessedTexts, s.Message()))
}

// settle gives the try's outcome to the instance's statistics, once a pick.
func (a *attempt) settle(outcome selector.Outcome, now int64) {
	if !a.pick.open {
		return
	}
	a.pick.open = false
	a.pick.instance.node.End(now, a.pick.began, a.pick.load, outcome)
}

// run tries until a try succeeds or must not move on.
func (a *attempt) run(ctx context.Context, req any) error {
	call := a.call
	for {
		a.fresh()
		err := call.client.attempt(ctx, call, req)
		if err == nil {
			return nil
		}
		v := call.judge(ctx, err)
		if !a.mayMove(ctx, v) {
			if !a.facts.sent && !v.refusedBefore {
				clearTargets(call.opts)
			}
			return v.err
		}
	}
}

// succeeded credits the instance and the client's budget.
func (a *attempt) succeeded() {
	a.settle(selector.Success, a.call.client.now())
	a.call.client.budget.Earn()
}
