package grpc

import (
	"context"
	"strconv"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

const (
	// maxMoves bounds the moves of a call: draining and connection refusals.
	maxMoves = 5
	// leastTime is what a try must have left to be started.
	leastTime = time.Millisecond
	// pushbackKey is gRPC's trailer by which a server delays or stops retries.
	pushbackKey = "grpc-retry-pushback-ms"
)

// moveState is what a call remembers of its moves.
type moveState struct {
	count      int
	overloaded bool              // the one move of an overload has been made
	again      bool              // a connection refusal may go to a tried instance
	usedAgain  bool              // and did, once a call
	replayed   materpc.ErrorKind // grpc-go tries again by itself, for this reason
	refusal    error             // of the last try that was moved on from
}

// mayMove decides whether the call goes to another instance, without a policy,
// and prepares the next pick.
func (a *attempt) mayMove(ctx context.Context, v verdict) bool {
	in := a.pick.instance
	if v.refused == notRefused || a.moves.count >= maxMoves || in == nil || !hasTime(ctx) || a.stopped() {
		return false
	}
	a.leave(in, v.refused, true)
	if !in.fleet.offers(a) && !waitsForReady(a.call.opts) {
		return false
	}
	if v.refused == byOverload {
		if a.moves.overloaded || !a.call.client.budget.Spend() {
			return false
		}
		a.moves.overloaded = true
	}
	a.moves.refusal = v.err
	a.moved(in, v.kind, v.err)
	return true
}

// hasTime reports whether a further try can have leastTime.
func hasTime(ctx context.Context) bool {
	deadline, ok := ctx.Deadline()
	return ctx.Err() == nil && (!ok || time.Until(deadline) >= leastTime)
}

// stopped reports whether the peer's pushback forbids further tries. A
// positive one delays retries, not a move.
func (a *attempt) stopped() bool {
	values := a.facts.trailer[pushbackKey]
	if len(values) == 0 {
		return false
	}
	ms, err := strconv.Atoi(values[len(values)-1])
	return err != nil || ms < 0
}

// leave notes that an instance, or one of its connections, refused the call.
func (a *attempt) leave(in *instance, by refusal, sent bool) {
	if by == byConnection {
		a.moves.again = true
		a.moves.usedAgain = a.moves.usedAgain || sent && a.call.tried.Has(in.node)
	} else {
		if a.barred == nil {
			a.barred = new(selector.Tried)
		}
		a.barred.Add(in.node)
	}
	a.call.tried.Add(in.node)
}

// moved counts a move away from in and tells of it.
func (a *attempt) moved(in *instance, kind materpc.ErrorKind, err error) {
	a.moves.count++
	a.call.AddMove()
	a.call.client.moved.Add(1)
	if observers := &a.call.client.observers; observers.watching() {
		observers.emit(materpc.Event{Type: materpc.Move, Info: &a.call.RPCInfo, Peer: &in.peer, Kind: kind, Err: err})
	}
}

// replay notes a pick that follows another within one try: grpc-go goes on by
// itself when no stream could be created, or when a stream of which it keeps a
// copy was not processed. For us that is a move like any other: an untried
// instance first, and counted. The error, if any, is a status, which ends the
// call even when it waits for a ready instance.
func (a *attempt) replay() error {
	if !a.facts.ended {
		return nil
	}
	a.moves.replayed = materpc.GetConnection
	if a.facts.sent {
		a.moves.replayed = materpc.ServerRefused
	}
	a.leave(a.pick.instance, byConnection, a.facts.sent)
	a.facts = facts{}
	switch {
	case a.moves.count >= maxMoves:
		return errTooManyMoves
	case a.call.stream != nil && !a.call.stream.mayReplay():
		return errCutStream
	}
	return nil
}

var (
	errTooManyMoves = status.Errorf(codes.Unavailable, "materpc: the connections of %d instances in a row ended before the call was sent", maxMoves+1)
	errCutStream    = status.Error(codes.Unavailable, "materpc: the connection ended before the stream was sent, of which no copy was kept: open it again")
)

// waitsForReady reports whether the caller asked to wait for an instance.
func waitsForReady(opts []stdgrpc.CallOption) bool {
	wait := false
	for _, opt := range opts {
		if o, ok := opt.(stdgrpc.FailFastCallOption); ok {
			wait = !o.FailFast
		}
	}
	return wait
}

// clearTargets empties what a refused try wrote through the caller's Header,
// Trailer and Peer options. They hold the returned try's values: grpc-go
// overwrites them for each try that had a stream, this is for one that had none.
func clearTargets(opts []stdgrpc.CallOption) {
	for _, opt := range opts {
		switch o := opt.(type) {
		case stdgrpc.HeaderCallOption:
			*o.HeaderAddr = nil
		case stdgrpc.TrailerCallOption:
			*o.TrailerAddr = nil
		case stdgrpc.PeerCallOption:
			o.PeerAddr.Addr, o.PeerAddr.LocalAddr, o.PeerAddr.AuthInfo = nil, nil, nil
		}
	}
}
