package grpc

import (
	"context"
	"errors"
	"slices"
	"strings"

	"google.golang.org/genproto/googleapis/rpc/errdetails"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/selector"
)

// verdict is what this hop makes of a try that failed.
type verdict struct {
	kind          materpc.ErrorKind
	refused       refusal
	outcome       selector.Outcome // for the instance's statistics
	err           error            // what the caller gets
	unpicked      bool             // the try found no instance
	refusedBefore bool             // so err is the refusal of the try before
}

// refusal says who proved that no user code ran, if anybody.
type refusal uint8

const (
	notRefused   refusal = iota
	byConnection         // grpc-go: never processed; speaks of a connection
	byInstance           // the gate: draining
	byOverload           // the gate: at its own limit
)

// judge classifies the end of a try and settles the pick. The order matters:
// proof, then our own clock and the caller's, then what the transport knows,
// then what the peer said.
func (a *attempt) judge(ctx context.Context, err error) verdict {
	s := status.Convert(err)
	v := a.proved()
	for _, rule := range []func(context.Context, *status.Status) verdict{
		a.business, a.timed, a.unpicked, a.unsent, a.refusedByTransport, a.lost,
	} {
		if v.kind != materpc.NoError {
			break
		}
		v = rule(ctx, s)
	}
	if v.kind == materpc.NoError {
		v = a.remote(s)
	}
	a.settle(v.outcome, a.call.client.now())
	if v.kind == materpc.Biz {
		v.err = bizError(s, a.facts.trailer)
		return v
	}
	v.err = a.classified(v.kind, err)
	if v.unpicked && a.moves.refusal != nil {
		// The refusal that made the call move says more than that nothing is left.
		v.err, v.refusedBefore = a.moves.refusal, true
	}
	return v
}

// classified gives the error its kind, its peer and the cause that the balancer
// knew. What was decided at this hop also gets the kind's Kratos reason; what
// the peer said stays as it said it.
func (a *attempt) classified(kind materpc.ErrorKind, err error) error {
	var peer *materpc.Peer
	if a.pick.instance != nil {
		peer = &a.pick.instance.peer
	}
	return materpc.Classified(kind, reasoned(kind, err, a.pick.cause), peer)
}

// reasoned adds to an error what this hop decided.
func reasoned(kind materpc.ErrorKind, err, cause error) error {
	e := hopError{error: err, status: status.Convert(err), cause: cause}
	if kind != materpc.RemoteOrNetwork && len(e.status.Proto().GetDetails()) == 0 {
		if detailed, err := e.status.WithDetails(&errdetails.ErrorInfo{Reason: kind.Reason()}); err == nil {
			e.status = detailed
		}
	}
	return e
}

// hopError is grpc-go's error with what this hop adds.
type hopError struct {
	error
	status *status.Status
	cause  error // may be nil
}

func (e hopError) GRPCStatus() *status.Status { return e.status }

func (e hopError) Unwrap() []error {
	if e.cause == nil {
		return []error{e.error}
	}
	return []error{e.error, e.cause}
}

// proved reads the gate's proof. Only the nonce of this very connection object
// counts, and with discovery only the id of the instance that was picked.
func (a *attempt) proved() verdict {
	if a.pick.instance == nil {
		return verdict{}
	}
	client := a.call.client
	if values := a.facts.trailer[wire.AbortedKey]; len(values) > 0 && values[len(values)-1] == client.nonce {
		return verdict{kind: materpc.ServerDraining, outcome: selector.Failure}
	}
	values := a.facts.trailer[wire.RefusedKey]
	if len(values) == 0 {
		return verdict{}
	}
	proof, ok := wire.ParseRefusal(values[len(values)-1])
	if !ok || proof.Nonce != client.nonce {
		return verdict{}
	}
	in := a.pick.instance
	if in.peer.ID != "" && proof.Instance != in.peer.ID {
		if a.pick.open { // a stream may ask twice
			client.observers.emit(materpc.Event{
				Type: materpc.ProofMismatch, Info: &a.call.RPCInfo, Peer: &in.peer, Detail: proof.Instance,
			})
			client.mistaken(in.key.address, proof.Instance)
		}
		return verdict{}
	}
	in.gated.Store(true)
	switch proof.Reason {
	case wire.Draining:
		if in.drain(a.pick.connection) {
			client.observers.emit(materpc.Event{Type: materpc.InstanceDraining, Info: &a.call.RPCInfo, Peer: &in.peer})
		}
		v := verdict{kind: materpc.ServerRefused, refused: byInstance, outcome: selector.Neutral}
		if in.peer.ID == "" {
			// An address without an id outlives its process: the next connection
			// may well reach another one, for which a waiting call must not wait
			// in vain. The one that drains is out of the pick set.
			v.refused = byConnection
		}
		return v
	case wire.Overloaded:
		return verdict{kind: materpc.ServerRefused, refused: byOverload, outcome: selector.Failure}
	}
	return verdict{kind: materpc.Overlimit, outcome: selector.Neutral}
}

// business: Kitex's trailers say that the call worked and the answer is no.
func (a *attempt) business(_ context.Context, _ *status.Status) verdict {
	if len(a.facts.trailer[bizStatusKey]) == 0 {
		return verdict{}
	}
	return verdict{kind: materpc.Biz, outcome: selector.Success}
}

// timed: our own timeout, the caller's deadline or cancel. A status of that
// code while the ctx is alive is the peer's, or the connection's (B07).
func (a *attempt) timed(ctx context.Context, s *status.Status) verdict {
	if ctx.Err() == nil || (s.Code() != codes.DeadlineExceeded && s.Code() != codes.Canceled) {
		return verdict{}
	}
	switch {
	case context.Cause(ctx) == error(ownTimeout{a.call}): //nolint:errorlint // the very value that this call set
		return verdict{kind: materpc.RPCTimeout, outcome: selector.Failure}
	case errors.Is(ctx.Err(), context.DeadlineExceeded):
		return verdict{kind: materpc.TimeoutByBusiness, outcome: selector.Neutral}
	}
	return verdict{kind: materpc.CanceledByBusiness, outcome: selector.Neutral}
}

// unpicked: the picker left its reason in the record.
func (a *attempt) unpicked(_ context.Context, _ *status.Status) verdict {
	return verdict{kind: a.pick.failure, outcome: selector.Neutral, unpicked: true}
}

// unsent: no stream was created. Either the connection went away between pick
// and stream, or our own grpc-go refused: credentials, header list, charset,
// compressor.
func (a *attempt) unsent(_ context.Context, s *status.Status) verdict {
	if a.facts.sent {
		return verdict{}
	}
	in := a.pick.instance
	if s.Code() == codes.Unavailable && a.facts.picked && in.connection.Load() != a.pick.connection {
		return verdict{kind: materpc.GetConnection, refused: byConnection, outcome: selector.Neutral}
	}
	return verdict{kind: materpc.Local, outcome: selector.Neutral}
}

// refusedByTransport: a status that grpc-go made itself, with one of the texts
// that stand for "not processed". A peer cannot forge it: what a peer says
// arrives with content-type, which counts as received.
func (a *attempt) refusedByTransport(_ context.Context, s *status.Status) verdict {
	if a.facts.received || s.Code() != codes.Unavailable || !slices.Contains(unprocessedTexts, s.Message()) {
		return verdict{}
	}
	if client := a.call.client; !client.textsHold() {
		client.textsWarning.Do(func() {
			client.observers.emit(materpc.Event{Type: materpc.MovesDisabled, Detail: "grpc-go " + stdgrpc.Version})
		})
		return verdict{}
	}
	return verdict{kind: materpc.ServerRefused, refused: byConnection, outcome: selector.Neutral}
}

// lost: grpc-go ended the stream and nobody knows whether it ran.
func (a *attempt) lost(_ context.Context, s *status.Status) verdict {
	switch {
	case s.Code() == codes.Unavailable && (!a.facts.received || lostText(s.Message())),
		s.Code() == codes.Canceled && (!a.facts.received || closedText(s.Message())):
		return verdict{kind: materpc.ConnectionLost, outcome: selector.Failure}
	case s.Code() == codes.ResourceExhausted && localSizeText(s.Message()) && len(a.facts.trailer[contentType]) == 0,
		!a.facts.received && s.Code() == codes.Internal && !strings.HasPrefix(s.Message(), "stream terminated"):
		return verdict{kind: materpc.Local, outcome: selector.Neutral}
	}
	return verdict{}
}

// remote: the peer answered, or reset the stream. Behind a peer with our gate
// an unproved Unavailable or ResourceExhausted is a relayed status, and nobody
// we know is to blame.
func (a *attempt) remote(s *status.Status) verdict {
	gated := a.pick.instance != nil && a.pick.instance.gated.Load()
	switch s.Code() {
	case codes.ResourceExhausted:
		if gated || sizeText(s.Message()) {
			return verdict{kind: materpc.RemoteOrNetwork, outcome: selector.Neutral}
		}
		return verdict{kind: materpc.Overlimit, outcome: selector.Failure}
	case codes.Unavailable:
		if gated {
			return verdict{kind: materpc.RemoteOrNetwork, outcome: selector.Neutral}
		}
		return verdict{kind: materpc.RemoteOrNetwork, outcome: selector.Failure}
	case codes.DeadlineExceeded, codes.Internal, codes.Unknown, codes.DataLoss, codes.Canceled:
		return verdict{kind: materpc.RemoteOrNetwork, outcome: selector.Failure}
	}
	return verdict{kind: materpc.RemoteOrNetwork, outcome: selector.Neutral}
}
