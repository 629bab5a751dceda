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

// openStream is the interceptor.
func (c *client) openStream(ctx context.Context, desc *grpc.StreamDesc, cc *grpc.ClientConn, method string, streamer grpc.Streamer, opts ...grpc.CallOption) (grpc.ClientStream, error) {
	p, err := c.openPlan(ctx, method)
	if err != nil {
		return nil, surface(ctx, err)
	}
	if p.Shield == nil {
		return streamer(ctx, desc, cc, method, opts...)
	}
	o := opening{method: method, desc: desc, cc: cc, streamer: streamer, life: ctx, options: opts}
	if !desc.ClientStreams {
		return newServerStream(c, o, p), nil
	}
	if p.repeats {
		if c.stream.Shield == nil {
			return nil, status.Errorf(codes.FailedPrecondition, "grpcshield: %s sends a stream, which cannot be sent again, and its shield may repeat its work (%s): give Client.Stream, or Client.Open, a shield without Retry and Hedge", method, p)
		}
		p = c.stream
	}
	return openOnce(o, p.Shield, c.stream.Shield)
}

// opening is a stream as its interceptor gets it.
type opening struct {
	method   string
	desc     *grpc.StreamDesc
	cc       *grpc.ClientConn
	streamer grpc.Streamer
	life     context.Context
	options  []grpc.CallOption
}

// stream is an open RPC, with a shield around its operations.
type stream struct {
	grpc.ClientStream
	life   context.Context
	ops    *shield.Shield                                   // nil for none
	cancel context.CancelFunc                               // ends the RPC, and frees what it holds
	ended  func(rpc grpc.ClientStream, trailer metadata.MD) // is told of an RPC's own end, if given

	once    sync.Once
	mu      sync.Mutex
	failure error // of the operation that ended the RPC
	whole   bool  // the RPC has come to its own end: its trailer is there
}

// operation is one of a stream's, as the shield gets it.
type operation struct {
	*stream
	kind    operationKind
	message any
}

type operationKind uint8

const (
	read operationKind = iota
	write
	closeSend
)

// do runs an operation, guarded by the shield if it asks for that. An error ends
// the RPC; io.EOF of a write does not, since the status is still to be read.
func (s *stream) do(kind operationKind, message any, guarded bool) error {
	if err := s.failed(nil); err != nil {
		return err
	}
	op := operation{s, kind, message}
	var eof bool
	var err error
	if guarded && s.ops != nil {
		eof, err = shield.Call(s.life, s.ops, op, guard)
	} else {
		eof, err = op.run(s.life)
	}
	switch {
	case err != nil:
		err = s.failed(surface(s.life, err))
		s.end()
		return err
	case eof:
		if kind == read {
			s.end()
		}
		return io.EOF
	}
	return nil
}

// guard runs an operation under its shield.
func guard(ctx context.Context, op operation) (eof bool, err error) {
	if ctx == op.life {
		return op.run(ctx)
	}
	return op.bound(ctx)
}

// bound runs an operation whose ctx ends the RPC.
func (op operation) bound(ctx context.Context) (eof bool, err error) {
	release := context.AfterFunc(ctx, func() {
		if op.life.Err() == nil { // before the transport says something of its own
			_ = op.failed(surface(op.life, context.Cause(ctx)))
		}
		op.cancel()
	})
	defer release() // of a panic
	eof, err = op.run(ctx)
	if !release() && err == nil { // the RPC is gone, whatever the operation says
		return false, ctx.Err()
	}
	return eof, err
}

// run does the operation. That a stream has come to its end is no failure.
func (op operation) run(ctx context.Context) (eof bool, err error) {
	switch op.kind {
	case read:
		if err = op.ClientStream.RecvMsg(op.message); err != nil {
			op.complete()
		}
	case write:
		err = op.ClientStream.SendMsg(op.message)
	case closeSend:
		err = op.ClientStream.CloseSend()
	}
	if err == io.EOF { //nolint:errorlint // grpc-go's contract
		return true, nil
	}
	return false, settled(ctx, err)
}

// failed notes the first failure, and returns it. What the RPC says afterwards is
// its consequence.
func (s *stream) failed(err error) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.failure == nil {
		s.failure = err
	}
	return s.failure
}

// end frees what the stream holds.
func (s *stream) end() {
	s.once.Do(func() {
		s.cancel()
		if s.ended != nil && s.isWhole() {
			s.ended(s.ClientStream, s.ClientStream.Trailer())
		}
	})
}

// Trailer implements [grpc.ClientStream]. A call that an operation has ended
// before the server could has none.
func (s *stream) Trailer() metadata.MD {
	if !s.isWhole() {
		return nil
	}
	return s.ClientStream.Trailer()
}

func (s *stream) isWhole() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.whole
}

func (s *stream) complete() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.whole = true
}

// sending is a client or bidirectional stream.
type sending struct {
	stream
	desc *grpc.StreamDesc
}

// openOnce opens a stream that is not repeated.
func openOnce(o opening, s, ops *shield.Shield) (grpc.ClientStream, error) {
	began := false
	opened, err := shield.Call(o.life, s, &began, func(ctx context.Context, began *bool) (*sending, error) {
		*began = true
		return o.open(ctx, ops)
	})
	if err == nil && opened == nil {
		err = swallowed(s)
	}
	if err == nil {
		return opened, nil
	}
	if opened != nil {
		opened.end() // a layer did not want it
	}
	err = surface(o.life, err)
	if !began { // otherwise grpc-go has told them
		wanted := sift(o.options)
		wanted.finished(err)
	}
	return nil, err
}

func (o opening) open(ctx context.Context, ops *shield.Shield) (*sending, error) {
	life, cancel := outlive(o.life, ctx)
	release := bind(o.life, ctx, cancel)
	opened := false
	defer func() {
		release()
		if !opened {
			cancel()
		}
	}()
	rpc, err := o.streamer(life, o.desc, o.cc, o.method, o.options...)
	if err != nil {
		return nil, settled(ctx, err)
	}
	if !release() {
		return nil, ctx.Err()
	}
	opened = true
	return &sending{stream: stream{ClientStream: rpc, life: o.life, ops: ops, cancel: cancel}, desc: o.desc}, nil
}

// SendMsg implements [grpc.ClientStream].
func (s *sending) SendMsg(m any) error { return s.do(write, m, true) }

// CloseSend implements [grpc.ClientStream].
func (s *sending) CloseSend() error { return s.do(closeSend, nil, true) }

// RecvMsg implements [grpc.ClientStream]. Waiting for the one response of a
// client stream is no operation: it would hold its permit all along.
func (s *sending) RecvMsg(m any) error {
	if s.desc.ServerStreams {
		return s.do(read, m, true)
	}
	err := s.do(read, m, false)
	if err == nil {
		s.complete()
		s.end()
	}
	return err
}

// Header implements [grpc.ClientStream]. It is no operation either.
func (s *sending) Header() (metadata.MD, error) {
	if err := s.failed(nil); err != nil {
		return nil, err
	}
	return s.ClientStream.Header()
}
