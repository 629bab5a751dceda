package grpc

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/materpc/materpc/health"
)

const (
	// settleWait is how long connections may take to close by themselves once
	// nothing runs any more. Peers close within a round trip; the wait is for
	// answers still on their way to a slow reader. Beyond it a peer that does
	// not acknowledge GOAWAY (grpc-go waits 5 s for that) holds nothing up.
	settleWait = time.Second
	// abortWait is how long handlers may take to return once their ctx is
	// cancelled, and again how long the forced stop may take.
	abortWait = 80 * time.Millisecond
)

// stopping is one Stop, which later ones join.
type stopping struct {
	done  chan struct{}
	force chan struct{} // closed by a joined Stop whose ctx ended
	err   error         // valid once done
}

// Stop drains the server and returns when nothing of it runs any more: GOAWAY;
// calls that can move are refused with proof; health and reflection streams
// end; running handlers and the functions of After go on for the exit wait or
// until ctx ends; what outlasts that is aborted as ServerDraining. It returns
// as soon as nothing is left to wait for. Handlers that do not return even then
// are left behind and named in the error.
//
// A second Stop joins the first, and forces it when its own ctx ends. Stop
// before Start frees the port that Endpoint bound.
func (s *Server) Stop(ctx context.Context) error {
	s.mu.Lock()
	if joined := s.stop; joined != nil {
		s.mu.Unlock()
		return s.join(ctx, joined)
	}
	s.stop = &stopping{done: make(chan struct{}), force: make(chan struct{})}
	own, started, managed := s.stop, s.started, s.managed
	s.mu.Unlock()

	if !managed {
		s.health.SetPhase(health.Draining)
	}
	own.err = s.drain(ctx, own.force)
	s.mu.Lock()
	if !started {
		s.unbindLocked()
	}
	s.mu.Unlock()
	if !managed {
		s.health.SetPhase(health.Stopped)
	}
	close(own.done)
	close(s.over)
	return own.err
}

func (s *Server) join(ctx context.Context, joined *stopping) error {
	select {
	case <-joined.done:
		return joined.err
	case <-ctx.Done():
	}
	s.mu.Lock()
	select {
	case <-joined.force:
	default:
		close(joined.force)
	}
	s.mu.Unlock()
	<-joined.done
	return joined.err
}

func (s *Server) stopped() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.stop != nil
}

// drain runs the steps of docs/grpc.md, "The drain of a server".
func (s *Server) drain(ctx context.Context, force <-chan struct{}) error {
	s.draining.Store(&drainMark{since: time.Now()})
	graceful := make(chan struct{})
	go func() { // ends with the connections, at the latest with Server.Stop below and the last handler
		defer close(graceful)
		s.Server.GracefulStop()
	}()
	close(s.ending)

	if !s.awaitBusiness(ctx, force, graceful) {
		s.abort(graceful)
	}
	forced := make(chan struct{})
	go func() { // as above
		defer close(forced)
		s.Server.Stop()
		<-graceful
		s.workers.Wait()
	}()
	within(forced, abortWait)
	return s.leftBehind()
}

// awaitBusiness waits until user code has returned and the connections have
// closed, or had the time to. False means that the exit wait is over first.
func (s *Server) awaitBusiness(ctx context.Context, force, graceful <-chan struct{}) bool {
	exit := time.NewTimer(s.exitWait(ctx))
	defer exit.Stop()
	settle := time.NewTimer(settleWait)
	defer settle.Stop()
	for {
		if graceful == nil && s.inflight.idle() {
			return true
		}
		select {
		case <-graceful:
			graceful = nil // closed connections; functions of After may still run
		case <-s.inflight.changed:
			settle.Reset(settleWait)
		case <-settle.C:
			if s.inflight.idle() {
				return true
			}
		case <-exit.C:
			return s.inflight.idle()
		case <-force:
			return false
		case <-ctx.Done():
			return false
		}
	}
}

// exitWait is the option's, else as long as ctx lasts, else the default.
func (s *Server) exitWait(ctx context.Context) time.Duration {
	if s.options.exitWait != nil {
		return *s.options.exitWait
	}
	if deadline, ok := ctx.Deadline(); ok {
		return time.Until(deadline)
	}
	return defaultExitWait
}

// abort answers for the handlers that outlasted the exit wait and gives them a
// moment to return: their ctx is cancelled.
func (s *Server) abort(graceful <-chan struct{}) {
	for _, c := range s.inflight.business() {
		c.abort()
	}
	over := time.NewTimer(abortWait)
	defer over.Stop()
	for graceful != nil || !s.inflight.idle() {
		select {
		case <-graceful:
			graceful = nil
		case <-s.inflight.changed:
		case <-over.C:
			return
		}
	}
}

// leftBehind names the handlers that ignore the end of their ctx.
func (s *Server) leftBehind() error {
	count := make(map[string]int)
	for _, c := range s.inflight.business() {
		count[c.FullMethod()]++
	}
	if len(count) == 0 {
		return nil
	}
	var names []string
	for name, n := range count {
		names = append(names, fmt.Sprintf("%s (%d)", name, n))
	}
	slices.Sort(names)
	return errors.New("transport/grpc: handlers left behind, they ignore the end of their ctx: " + strings.Join(names, ", "))
}

// within waits for done, at most for d.
func within(done <-chan struct{}, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-done:
	case <-timer.C:
	}
}
