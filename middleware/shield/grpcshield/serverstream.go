package grpcshield

import (
	"context"
	"errors"
	"io"
	"sync"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/peer"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
)

// serverStream is a server stream that is opened by its first read, or request
// for headers, under a shield that may repeat it. Up to there the request is
// kept. An attempt that has got a message, or whose headers the caller has seen,
// is committed: nothing is repeated any more.
type serverStream struct {
	opening
	client *client
	open   plan
	wanted options
	direct bool // the options flow through: there is one attempt

	mu        sync.Mutex
	phase     phase
	request   any
	attempts  []*streamAttempt
	watching  bool // somebody waits for headers
	over      bool // the opening is
	stopped   bool // by the server
	running   sync.WaitGroup
	committed *streamAttempt
	commits   chan struct{} // closed when committed is set

	// Written before done is closed, read after it.
	done     chan struct{}
	selected *streamAttempt // also of an opening that failed, nil if it was a layer
	err      error          // of the opening, or io.EOF
	later    *stream
}

type phase uint8

const (
	fresh phase = iota
	sent        // the request is there
	begun       // somebody opens
)

func newServerStream(c *client, o opening, open plan) *serverStream {
	s := &serverStream{
		opening: o, client: c, open: open, direct: !open.repeats && !finishes(o.options),
		commits: make(chan struct{}), done: make(chan struct{}),
	}
	if !s.direct {
		s.wanted = sift(o.options)
	}
	return s
}

// SendMsg implements [grpc.ClientStream]. It keeps the request, which must not
// change until the first read has returned.
func (s *serverStream) SendMsg(m any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.phase != fresh {
		return status.Errorf(codes.Internal, "grpcshield: a second request on %s, which takes one", s.method)
	}
	s.request, s.phase = m, sent
	return nil
}

// CloseSend implements [grpc.ClientStream]. There is one request, so that its
// sending ends with it.
func (s *serverStream) CloseSend() error { return nil }

// RecvMsg implements [grpc.ClientStream].
func (s *serverStream) RecvMsg(m any) error {
	first, err := s.claim()
	if err != nil {
		return err
	}
	if first {
		return s.establish(m)
	}
	<-s.done // it ends with the ctx at the latest
	if s.err != nil {
		return s.err
	}
	return s.later.do(read, m, true)
}

// Header implements [grpc.ClientStream]. Once it has returned headers, the RPC
// that they come from is not repeated. An opening that fails has its error here
// too.
func (s *serverStream) Header() (metadata.MD, error) {
	first, err := s.claim()
	if err != nil {
		return nil, err
	}
	if first {
		_ = s.establish(nil) // see below
	} else {
		s.watch()
	}
	select {
	case <-s.done:
	case <-s.commits:
	}
	select {
	case <-s.commits:
		return s.committed.rpc.Header()
	default:
		return nil, s.err
	}
}

// Trailer implements [grpc.ClientStream].
func (s *serverStream) Trailer() metadata.MD {
	switch a := s.opened(); {
	case a == nil:
		return nil
	case s.later != nil:
		return s.later.Trailer()
	default:
		return a.trailer
	}
}

// Context implements [grpc.ClientStream]. Before the stream is open it is the
// caller's.
func (s *serverStream) Context() context.Context {
	if a := s.opened(); a != nil && a.rpc != nil {
		return a.rpc.Context()
	}
	return s.life
}

// opened returns the selected attempt once there is one.
func (s *serverStream) opened() *streamAttempt {
	select {
	case <-s.done:
		return s.selected
	default:
		return nil
	}
}

// claim makes one caller the one who opens the stream.
func (s *serverStream) claim() (first bool, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch s.phase {
	case fresh:
		return false, status.Errorf(codes.Internal, "grpcshield: a read on %s before its request is sent", s.method)
	case sent:
		s.phase = begun
		return true, nil
	default:
		return false, nil
	}
}

// establish opens the stream: up to the first message, if one is given to put it
// into, else up to the headers.
func (s *serverStream) establish(message any) error {
	work := first{s, message}
	if message != nil && s.open.overlaps {
		if _, err := another(message); err != nil {
			return s.settle(nil, work, err)
		}
	}
	returned := false
	defer func() {
		if !returned { // a layer's panic goes on
			_ = s.settle(nil, work, status.Error(codes.Internal, "grpcshield: the opening has panicked"))
		}
	}()
	a, err := shield.Call(s.life, s.open.Shield, work, func(ctx context.Context, w first) (*streamAttempt, error) { return w.attempt(ctx) })
	if err == nil && (a == nil || a.err != nil) {
		err = swallowed(s.open.Shield)
	}
	returned = true
	return s.settle(a, work, err)
}

// settle ends the opening: losers go, and everybody who waits learns of it.
func (s *serverStream) settle(a *streamAttempt, work first, err error) error {
	s.mu.Lock()
	s.over = true
	if err != nil && s.committed != nil {
		s.committed.cancel() // a layer did not want it
	}
	s.mu.Unlock()
	s.running.Wait()
	if a != nil && !errors.Is(err, a.err) { // the caller has cancelled between attempts, or a layer has its own mind
		a = nil
	}
	s.selected, s.err = a, surface(s.life, err)
	if err == nil {
		s.later = &stream{ClientStream: a.rpc, life: s.life, ops: s.client.stream.Shield, cancel: a.cancel, whole: a.eof, ended: s.hand}
		a.report(s.wanted.finished)
		switch {
		case a.eof:
			s.later.end()
			s.err = io.EOF
		case a.message != work.message:
			s.err = transfer(work.message, a.message)
		}
	} else {
		if a != nil && a.rpc != nil {
			s.hand(a.rpc, a.trailer)
		}
		s.wanted.finished(s.err)
	}
	close(s.done)
	return s.err
}

// hand gives the options of the call what the selected RPC has ended with.
func (s *serverStream) hand(rpc grpc.ClientStream, trailer metadata.MD) {
	if len(s.wanted.headers)+len(s.wanted.trailers)+len(s.wanted.peers) == 0 {
		return
	}
	c := collected{trailer: trailer}
	c.header, _ = rpc.Header() // there, or never
	if p, ok := peer.FromContext(rpc.Context()); ok {
		c.peer = *p
	}
	s.wanted.hand(&c)
}

// watch has all attempts, those to come included, look out for headers.
func (s *serverStream) watch() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.watching = true
	if s.over {
		return
	}
	for _, a := range s.attempts {
		s.watchHeader(a)
	}
}

// watchHeader commits the attempt when its headers are there. The caller holds
// the lock. The goroutine ends with the RPC, and settle waits for it.
func (s *serverStream) watchHeader(a *streamAttempt) {
	if a.rpc == nil || a.watched || !s.watching {
		return
	}
	a.watched = true
	s.running.Add(1)
	go func() {
		defer s.running.Done()
		if md, err := a.rpc.Header(); err == nil && md != nil {
			s.mu.Lock()
			defer s.mu.Unlock()
			if !a.ended {
				s.commit(a)
			}
		}
	}()
}

// commit makes an attempt the last, unless another is already. Those beside it
// are of no use any more: they follow it. The caller holds the lock.
func (s *serverStream) commit(a *streamAttempt) {
	if s.committed != nil {
		return
	}
	s.committed = a
	close(s.commits)
	for _, other := range s.attempts {
		if other != a {
			other.cancel()
		}
	}
}
