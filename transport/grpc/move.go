package grpc

import (
	"context"
	"strconv"
	"time"

	stdgrpc "google.golang.org/grpc"

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
	overloaded bool // the one move of an overload has been made
	again      bool // a connection refusal may go to a tried instance
	usedAgain  bool // and did, once a call
}

// mayMove decides whether the call goes to another instance, without a policy,
// and prepares the next pick.
func (a *attempt) mayMove(ctx context.Context, v verdict) bool {
	if v.refused == notRefused || a.moves.count >= maxMoves || a.pick.instance == nil {
		return false
	}
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) < leastTime || ctx.Err() != nil {
		return false
	}
	if values := a.facts.trailer[pushbackKey]; len(values) > 0 {
		// A positive pushback delays retries, not a move.
		if ms, err := strconv.Atoi(values[len(values)-1]); err != nil || ms < 0 {
			return false
		}
	}
	if v.refused == byOverload {
		if a.moves.overloaded || !a.call.client.budget.Spend() {
			return false
		}
		a.moves.overloaded = true
	}
	in := a.pick.instance
	a.call.tried.Add(in.node)
	a.moves.again = v.refused == byConnection
	if v.refused != byConnection {
		if a.barred == nil {
			a.barred = new(selector.Tried)
		}
		a.barred.Add(in.node)
	}
	if !in.fleet.offers(a) {
		return false
	}
	a.moves.count++
	a.call.AddMove()
	a.call.client.moved.Add(1)
	if observers := &a.call.client.observers; observers.watching() {
		observers.emit(materpc.Event{Type: materpc.Move, Info: &a.call.RPCInfo, Peer: &in.peer, Kind: v.kind, Err: v.err})
	}
	return true
}

// clearTargets empties what the refused try wrote through the caller's Header,
// Trailer and Peer options, so that they hold the returned try's values only.
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
