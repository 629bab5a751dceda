package grpc

import (
	"context"
	"errors"
	"io"
	"sync"
	"sync/atomic"

	"github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// clientStream is a stream as the caller sees it: one logical call over one or,
// until something was accepted or received, several tries. Its finish is
// grpc-go's own end: EOF, error, end of the ctx, Close of the connection.
type clientStream struct {
	call *clientCall
	ctx  context.Context // of the tries

	wrapped   stdgrpc.ClientStream // what a user's layer made of it
	committed atomic.Bool          // a message was accepted or something received: no move any more
	asking    atomic.Int32         // Headers that ask grpc-go, which ends a stream without header as if it were well

	current atomic.Pointer[stdgrpc.ClientStream] // written under mu
	replays atomic.Int32                         // grpc-go's own, or noReplay; see send

	reading sync.Mutex // see read
	mu      sync.Mutex // held while a try is replaced
	request any        // the one message of a server stream, for a next try
	sent    bool
	closed  bool // CloseSend was called

	end    sync.Mutex // guards what follows, and the attempt's settling
	over   bool
	err    error // what RecvMsg returns once over; io.EOF for success
	latest *streamTry
	first  streamTry
}

// streamTry is one try of a stream. grpc-go may tell of its end late, from
// another goroutine, when the next try runs: that end says nothing any more.
type streamTry struct {
	stream  *clientStream
	opening atomic.Bool           // its end is the opener's
	early   atomic.Pointer[error] // it ended while it was being opened
}

// newStream is the outermost stream interceptor: one run is one logical call.
func (c *client) newStream(ctx context.Context, desc *stdgrpc.StreamDesc, cc *stdgrpc.ClientConn, method string, streamer stdgrpc.Streamer, opts ...stdgrpc.CallOption) (stdgrpc.ClientStream, error) {
	if method == probeMethod {
		c.find(opts)
		return nil, errProbed
	}
	call := c.newCall(ctx, method, materpc.ShapeOf(desc.ClientStreams, desc.ServerStreams), cc, opts)
	call.desc, call.streamer = desc, streamer
	s := &clientStream{call: call, ctx: call}
	call.stream = s
	if err := c.chain(call, call, nil); err != nil {
		return nil, err
	}
	if s.wrapped != nil {
		return s.wrapped, nil
	}
	return s, nil
}

// throughUser establishes the stream through the user's layers. A layer may
// fail after next has established it; it then has no reader, and only its ctx
// ends it.
func (s *clientStream) throughUser(ctx context.Context, layers middleware.Handler) error {
	ctx, cancel := context.WithCancel(ctx)
	err := errLayerPanic
	defer func() {
		if err != nil { // before the cancel, whose own end would else be the call's
			s.fail(err)
			cancel()
		}
	}()
	s.wrapped, err = streamOf(layers(ctx, nil))
	if err == nil {
		s.call.OnFinish(func(error) { cancel() })
	}
	return err
}

// establish opens the first try. Client and bidi streams keep grpc-go's own
// replay of streams that were not processed.
func (s *clientStream) establish(ctx context.Context) error {
	s.ctx = ctx
	call := s.call
	call.opts = call.opts[:len(call.opts):len(call.opts)]
	if call.desc.ClientStreams {
		call.opts = append(call.opts, stdgrpc.MaxRetryRPCBufferSize(replayBuffer))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	return call.attempt.run(ctx, nil)
}

// replayBuffer is grpc-go's default, which our client lowers for the shapes
// whose re-sends are all ours.
const replayBuffer = 256 << 10

// try opens one try. s.mu is held.
func (s *clientStream) try(ctx context.Context) error {
	call := s.call
	t := s.nextTry()
	t.opening.Store(true)
	opts := append(call.opts[:len(call.opts):len(call.opts)], stdgrpc.OnFinish(t.ended))
	stream, err := call.streamer(ctx, call.desc, call.cc, call.method, opts...)
	t.opening.Store(false)
	if err != nil {
		return err
	}
	s.current.Store(&stream)
	if ended := t.early.Load(); ended != nil {
		t.ended(*ended)
	}
	return nil
}

func (s *clientStream) nextTry() *streamTry {
	s.end.Lock()
	defer s.end.Unlock()
	t := &s.first
	if t.stream != nil {
		t = new(streamTry)
	}
	t.stream = s
	s.latest = t
	return t
}

// retire makes ends of the try that is left behind say nothing.
func (s *clientStream) retire() {
	s.end.Lock()
	defer s.end.Unlock()
	s.latest = nil
}

// ended is grpc-go's OnFinish. It runs because the reader met the end, who
// moves on from a refused try, or because the ctx or the connection ended.
func (t *streamTry) ended(err error) {
	if t.opening.Load() {
		t.early.Store(&err)
		if t.opening.Load() {
			return
		}
	}
	s := t.stream
	switch {
	case err == nil && s.asking.Load() > 0:
		// The reader finds out how it really ended, or gives up with the ctx.
		well := s.endedWell()
		stop := context.AfterFunc(s.ctx, func() { s.abandon(t, well) })
		s.call.OnFinish(func(error) { stop() })
	case err == nil:
		s.conclude(t, io.EOF)
	case !t.leavesMove(err):
		s.conclude(t, err)
	}
}

// endedWell tells a stream that grpc-go's Header has ended: a peer that said OK
// has been received, a stream that was never sent has not; and OK without a
// header is no answer where there must be one.
func (s *clientStream) endedWell() bool {
	s.end.Lock()
	defer s.end.Unlock()
	return s.call.attempt.facts.received && s.call.desc.ServerStreams
}

// abandon ends the call of a stream that Header has ended and nobody has read.
func (s *clientStream) abandon(t *streamTry, well bool) {
	if well {
		s.conclude(t, io.EOF)
		return
	}
	s.conclude(t, status.FromContextError(s.ctx.Err()).Err())
}

// leavesMove reports whether the try that ended with err was refused before
// user code ran, so that its reader may move on, or has.
func (t *streamTry) leavesMove(err error) bool {
	s := t.stream
	s.end.Lock()
	defer s.end.Unlock()
	if s.over || s.latest != t {
		return true
	}
	return !s.committed.Load() && s.ctx.Err() == nil && !closedText(status.Convert(err).Message()) &&
		s.call.attempt.judge(s.ctx, err).refused != notRefused
}

// conclude ends the call with the end of its last try, once.
func (s *clientStream) conclude(t *streamTry, err error) {
	s.endOnce(t, func() error {
		if errors.Is(err, io.EOF) {
			s.call.attempt.succeeded()
			return io.EOF
		}
		return s.call.attempt.judge(s.ctx, err).err
	})
}

// fail ends the call with an error that has been judged.
func (s *clientStream) fail(err error) {
	s.endOnce(nil, func() error {
		s.call.attempt.settle(selector.Neutral, s.call.client.now()) // if nobody has
		return err
	})
}

// endOnce ends the call, unless it has ended or t, if any, has been left behind.
func (s *clientStream) endOnce(t *streamTry, result func() error) {
	s.end.Lock()
	if s.over || t != nil && s.latest != t {
		s.end.Unlock()
		return
	}
	s.over = true
	s.err = result()
	err := s.err
	s.end.Unlock()
	if errors.Is(err, io.EOF) {
		s.call.finished(nil)
	} else {
		s.call.finished(err)
	}
}

// concluded ends the call and returns what the caller gets.
func (s *clientStream) concluded(err error) error {
	s.conclude(nil, err)
	s.end.Lock()
	defer s.end.Unlock()
	return s.err
}

// reopen replaces a try that ended with err by one at another instance.
func (s *clientStream) reopen(failed stdgrpc.ClientStream, err error) bool {
	moved, err := s.replace(failed, err)
	if err != nil {
		s.fail(err) // without s.mu: hooks of the finish may use the stream
	}
	return moved
}

// replace is reopen under s.mu. Its error, if any, ends the call.
func (s *clientStream) replace(failed stdgrpc.ClientStream, err error) (moved bool, failure error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if current := s.stream(); s.committed.Load() || current != failed {
		return current != failed, nil
	}
	if over, _ := s.ended(); over {
		return false, nil
	}
	if v := s.call.judge(s.ctx, err); !s.call.attempt.mayMove(s.ctx, v) {
		return false, v.err
	}
	s.retire()
	if err := s.call.attempt.run(s.ctx, nil); err != nil {
		return false, err
	}
	if err := s.resend(); err != nil {
		return false, s.call.judge(s.ctx, err).err
	}
	return true, nil
}

// resend gives the new try what the refused one had been given.
func (s *clientStream) resend() error {
	stream := s.stream()
	if s.sent {
		if err := stream.SendMsg(s.request); err != nil {
			return err
		}
	}
	if s.closed {
		return stream.CloseSend()
	}
	return nil
}

// stream returns the try in use, nil before the first.
func (s *clientStream) stream() stdgrpc.ClientStream {
	if current := s.current.Load(); current != nil {
		return *current
	}
	return nil
}

// Header implements grpc.ClientStream. A try that was refused has no header,
// so the next one's is returned.
func (s *clientStream) Header() (metadata.MD, error) {
	for {
		stream := s.stream()
		s.asking.Add(1)
		md, err := stream.Header()
		s.asking.Add(-1)
		if md != nil {
			s.commit()
			return md, err
		}
		// In this order: what commits a try comes after what replaces the one before.
		committed := s.committed.Load()
		if s.stream() != stream {
			continue
		}
		if committed {
			return md, err
		}
		// The stream ended without a header; RecvMsg tells why, and decodes
		// nothing.
		failure, current := s.read(stream, &emptypb.Empty{})
		if !current {
			continue
		}
		if failure == nil {
			failure = io.EOF
		}
		if errors.Is(failure, io.EOF) || !s.reopen(stream, failure) {
			s.conclude(nil, failure) // RecvMsg returns it
			return nil, nil
		}
	}
}

// Trailer implements grpc.ClientStream.
func (s *clientStream) Trailer() metadata.MD { return s.stream().Trailer() }

// CloseSend implements grpc.ClientStream.
func (s *clientStream) CloseSend() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.closed = true
	return s.stream().CloseSend()
}

// Context implements grpc.ClientStream.
func (s *clientStream) Context() context.Context { return s.stream().Context() }

// SendMsg implements grpc.ClientStream. From the first message on a client or
// bidi stream stays where it is: nothing of it is kept for a replay of ours.
func (s *clientStream) SendMsg(m any) error {
	if s.call.desc.ClientStreams {
		if !s.committed.Load() {
			s.mu.Lock() // no replacement from here on
			s.committed.Store(true)
			s.mu.Unlock()
		}
		return s.sendError(s.send(m))
	}
	if s.committed.Load() {
		return s.sendError(s.stream().SendMsg(m))
	}
	s.mu.Lock()
	s.request, s.sent = m, true
	stream := s.stream()
	s.mu.Unlock()
	return s.sendError(stream.SendMsg(m))
}

// noReplay as the number of replays: from now on there may be none.
const noReplay = -1

// send sends one of several messages. Of a stream that its connection never got
// to send grpc-go says io.EOF here, and replays it all the same when the result
// is read (v1.85, withRetry: such a stream has no status, which reads as OK). By
// then the caller has stopped sending: the next server would take the beginning
// for the whole and answer OK. So once io.EOF was said there is no replay.
func (s *clientStream) send(m any) error {
	before := s.replays.Load()
	err := s.stream().SendMsg(m)
	if !errors.Is(err, io.EOF) || before == noReplay || s.replays.CompareAndSwap(before, noReplay) {
		return err
	}
	return nil // a replay beside this call took the message with it; the next one tells how it goes
}

// mayReplay notes a replay of grpc-go's, if there may be one.
func (s *clientStream) mayReplay() bool {
	for {
		before := s.replays.Load()
		if before == noReplay {
			return false
		}
		if s.replays.CompareAndSwap(before, before+1) {
			return true
		}
	}
}

// sendError passes io.EOF on bare, as grpc-go does: RecvMsg tells the status.
func (s *clientStream) sendError(err error) error {
	if err == nil || errors.Is(err, io.EOF) {
		return err
	}
	return s.concluded(err)
}

// RecvMsg implements grpc.ClientStream.
func (s *clientStream) RecvMsg(m any) error {
	for {
		if ended, err := s.ended(); ended {
			return err
		}
		stream := s.stream()
		err, current := s.read(stream, m)
		if !current {
			continue
		}
		if err == nil {
			if !s.call.desc.ServerStreams { // the one reply is read with the status behind it
				s.conclude(nil, io.EOF)
			}
			return nil
		}
		committed := s.committed.Load() // before the next line, see Header
		if s.stream() != stream {
			continue
		}
		if committed || errors.Is(err, io.EOF) || !s.reopen(stream, err) {
			return s.concluded(err)
		}
	}
}

// read reads from a try, unless another has taken its place. Until something
// is committed only one reads at a time: beside RecvMsg a Header may have to.
func (s *clientStream) read(stream stdgrpc.ClientStream, m any) (err error, current bool) { //nolint:revive // the comma-ok form
	if !s.committed.Load() {
		s.reading.Lock()
		defer s.reading.Unlock()
		if s.stream() != stream {
			return nil, false
		}
	}
	if err = stream.RecvMsg(m); err == nil {
		s.commit()
	}
	return err, true
}

// commit ends the time of moves, for which alone a request is kept.
func (s *clientStream) commit() {
	if s.committed.Swap(true) {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.request = nil
}

// ended reports the end that another path has already found, a Header that had
// to read it for instance.
func (s *clientStream) ended() (bool, error) {
	if s.committed.Load() {
		return false, nil
	}
	s.end.Lock()
	defer s.end.Unlock()
	return s.over, s.err
}
