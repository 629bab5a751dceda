package grpcshield

import (
	"context"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
)

// streamAttempt is one RPC of an opening.
type streamAttempt struct {
	life    context.Context // of the RPC
	cancel  context.CancelFunc
	message any  // to read the first into
	eof     bool // the stream has none

	// Under the stream's lock.
	rpc     grpc.ClientStream // nil until it is open
	watched bool
	ended   bool

	over    chan struct{} // closed when what follows is known
	err     error
	outcome error       // err, with the server's wish
	trailer metadata.MD // of a failure

	mu       sync.Mutex
	finished bool // grpc-go has said so
	end      error
	listener func(error)
}

// first is the work of an opening: up to the first message, or with none up to
// the headers.
type first struct {
	*serverStream
	message any
}

// attempt opens one RPC, or follows the one that is committed.
func (w first) attempt(ctx context.Context) (*streamAttempt, error) {
	a, leader, err := w.begin(ctx)
	if err != nil {
		return nil, err
	}
	if leader == nil {
		leader = w.lead(ctx, a)
	}
	<-leader.over // it hangs on the caller's ctx and its own
	return leader, leader.outcome
}

// begin prepares an attempt, or returns the one to follow.
func (w first) begin(ctx context.Context) (a, leader *streamAttempt, err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch {
	case w.committed != nil:
		return nil, w.committed, nil
	case w.over:
		return nil, nil, context.Cause(ctx)
	}
	a = &streamAttempt{message: w.message, over: make(chan struct{})}
	if w.message != nil && w.open.overlaps {
		if a.message, err = another(w.message); err != nil {
			return nil, nil, err
		}
	}
	a.life, a.cancel = outlive(w.serverStream.life, ctx)
	w.attempts = append(w.attempts, a)
	w.running.Add(1)
	return a, nil, nil
}

// lead runs an attempt and returns the one whose end is its end: itself, unless
// another has been committed.
func (w first) lead(ctx context.Context, a *streamAttempt) (leader *streamAttempt) {
	defer w.running.Done()
	release := bind(w.serverStream.life, ctx, a.cancel)
	err := status.Error(codes.Internal, "grpcshield: the opening of "+w.method+" has panicked")
	defer func() {
		release()
		leader = w.conclude(a, err)
	}()
	err = w.exchange(a)
	if err != nil && a.rpc != nil {
		a.trailer = a.rpc.Trailer()
	}
	if !release() && err == nil { // the RPC is gone, whatever has come of it
		err = ctx.Err()
	}
	err = settled(ctx, err)
	return nil
}

// exchange opens the RPC, sends the request and gets what the opening is about.
func (w first) exchange(a *streamAttempt) error {
	if w.open.repeats {
		if err := w.client.owner(a.life, w.cc, w.method, w.open.Shield); err != nil {
			return err
		}
	}
	options := w.options
	if !w.direct {
		options = append(w.wanted.rest[:len(w.wanted.rest):len(w.wanted.rest)], grpc.OnFinish(a.finish))
	}
	rpc, err := w.streamer(a.life, w.desc, w.cc, w.method, options...)
	if err != nil {
		return err
	}
	w.mu.Lock()
	a.rpc = rpc
	w.watchHeader(a)
	w.mu.Unlock()
	if err = rpc.SendMsg(w.request); err == nil {
		err = rpc.CloseSend()
	}
	if err != nil && err != io.EOF { //nolint:errorlint // grpc-go's contract: the status is to be read
		return err
	}
	if w.message == nil {
		if md, err := rpc.Header(); err != nil || md != nil {
			return err
		}
	}
	if err = rpc.RecvMsg(a.message); err == io.EOF { //nolint:errorlint // grpc-go's contract
		a.eof, err = true, nil
	}
	return err
}

// conclude ends an attempt. A success is committed.
func (w first) conclude(a *streamAttempt, err error) (leader *streamAttempt) {
	w.mu.Lock()
	defer w.mu.Unlock()
	a.ended = true
	if err == nil {
		w.commit(a)
	}
	a.err, a.outcome = err, err
	switch {
	case err == nil:
	case w.committed == a: // the caller knows its headers
		a.outcome = &shield.Wished{Err: err, Delay: 0, Stop: true, Final: true}
	default:
		a.outcome = wished(err, a.trailer, &w.stopped)
	}
	close(a.over)
	if err != nil {
		a.cancel()
	}
	if w.committed != nil {
		return w.committed
	}
	return a
}

// finish is told by grpc-go that the RPC has ended.
func (a *streamAttempt) finish(err error) {
	a.mu.Lock()
	a.finished, a.end = true, err
	listener := a.listener
	a.mu.Unlock()
	if listener != nil {
		listener(err)
	}
}

// report has fn told of the RPC's end, at once if it has ended.
func (a *streamAttempt) report(fn func(error)) {
	a.mu.Lock()
	a.listener = fn
	finished, err := a.finished, a.end
	a.mu.Unlock()
	if finished {
		fn(err)
	}
}
