package app

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"time"

	"github.com/go-kratos/kratos/v2/transport"

	"github.com/materpc/materpc/health"
)

const (
	// settleTime is how long a server that cannot say when it is ready may fail
	// before it counts as serving: Kratos's servers fail at once or not at all.
	settleTime = 50 * time.Millisecond
	// leaveBehind is how long after the end of its ctx a server may take to
	// return from Stop, and Start after Stop.
	leaveBehind = time.Second
)

// serving is one server from its Start on.
type serving struct {
	name   string
	srv    transport.Server
	ctx    context.Context // of Start: not ended by a stop, requests inherit it
	endCtx context.CancelFunc
	ended  chan struct{} // closed when Start has returned; err is final then
	err    error
}

func newServing(base context.Context, index int, srv transport.Server) *serving {
	ctx, cancel := context.WithCancel(health.NewManagedContext(base))
	return &serving{name: serverName(index, srv), srv: srv, ctx: ctx, endCtx: cancel, ended: make(chan struct{})}
}

// serverName says which server of the list it is.
func serverName(index int, srv transport.Server) string {
	return fmt.Sprintf("server %d (%T)", index+1, srv)
}

// serve starts all servers and waits until each is ready or one has failed.
func (r *run) serve() error {
	r.served = true
	for i, srv := range r.opts.servers {
		r.servers = append(r.servers, newServing(r.base, i, srv))
	}
	for _, s := range r.servers {
		go s.start(r.fail)
	}
	settled := make(chan struct{})
	defer time.AfterFunc(settleTime, func() { close(settled) }).Stop()
	for _, s := range r.servers {
		ready, live := s.ready(), r.live.Done()
		if ready == nil { // settles also in a hurry: not everyone bears a Stop that overtakes Start
			ready, live = settled, nil
		}
		select {
		case <-ready:
		case <-s.ended:
		case <-live:
			return nil // interrupted
		}
	}
	return nil
}

// start runs Start to its end and tells fail of its error, which has an effect
// as long as the stop has not begun.
// Start may return nil early: such a server serves in the background.
func (s *serving) start(fail context.CancelCauseFunc) {
	s.err = fmt.Errorf("app: %s Start: ended its goroutine without returning", s.name)
	defer func() { // deferred: Start may call runtime.Goexit
		if s.err != nil {
			fail(s.err)
		}
		close(s.ended)
	}()
	err := guarded(s.name+" Start", func() error { return s.srv.Start(s.ctx) })
	if errors.Is(err, context.Canceled) { // no failure, as in Kratos
		err = nil
	}
	s.err = err
}

// ready returns the server's own readiness, nil if it has none.
func (s *serving) ready() (ready <-chan struct{}) {
	if r, ok := s.srv.(interface{ Ready() <-chan struct{} }); ok {
		_ = guarded(s.name+" Ready", func() error { ready = r.Ready(); return nil })
	}
	return ready
}

// stop ends one server and waits for its Start, both within bounds. The root
// error is not reported again; what Start says after the Stop of a server that
// was never ready is a consequence of that Stop.
func (s *serving) stop(ctx context.Context, root error, ready bool) error {
	defer s.endCtx()
	err := call(ctx, s.name+" Stop", patience{grace: leaveBehind}, s.srv.Stop)
	if errors.Is(err, ErrLeftBehind) {
		return err
	}
	s.endCtx()
	timer := time.NewTimer(leaveBehind)
	defer timer.Stop()
	select {
	case <-s.ended:
	case <-timer.C:
		return join(err, fmt.Errorf("app: %s Start: %w after Stop", s.name, ErrLeftBehind))
	}
	if !ready || s.err == nil || errors.Is(root, s.err) || errors.Is(s.err, http.ErrServerClosed) {
		return err
	}
	return join(err, s.err)
}
