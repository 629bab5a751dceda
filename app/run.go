package app

import (
	"context"
	"errors"
	"os"
	"os/signal"
	"sync"
	"time"

	"github.com/materpc/materpc/health"
	"github.com/materpc/materpc/registry"
)

// stepGrace is how long a step whose ctx has ended may take to return.
const stepGrace = 50 * time.Millisecond

var errSecondSignal = errors.New("app: a second signal ends the wait")

// step is one entry of the start list or the stop list.
type step struct {
	name string
	run  func() error
}

// run is the state of one Run. It belongs to the goroutine of Run; what others
// touch are contexts and the fields behind mu.
//
//	asked  ends when a stop is asked for
//	broken ends with the error of a server that failed
//	live   is the ctx of start hooks: ends with asked or broken during the
//	       start, else when the servers are stopped
//	forced ends with the second signal
//	base   carries the values of the parent and the AppInfo and never ends
type run struct {
	app   *App
	opts  *options
	queue *eventQueue

	base    context.Context
	live    context.Context
	endLive context.CancelFunc
	broken  context.Context
	fail    context.CancelCauseFunc
	forced  context.Context
	force   context.CancelCauseFunc

	mu       sync.Mutex
	forcedAt time.Time

	bound        []bound
	servers      []*serving
	registration *registry.Registration
	budget       *budget

	root       error // why the app stops, nil when it was asked to
	hooksBegan bool  // a before-start hook was called
	served     bool  // servers were started
	registered bool  // Register succeeded
	ready      bool  // the start is complete
	withdrawn  bool  // was registered, and the deregistration is confirmed
}

func newRun(a *App) *run {
	r := &run{app: a, opts: &a.opts, queue: a.queue}
	r.base = NewContext(context.WithoutCancel(a.opts.ctx), a)
	r.live, r.endLive = context.WithCancel(r.base)
	r.broken, r.fail = context.WithCancelCause(context.Background())
	r.forced, r.force = context.WithCancelCause(context.Background())
	return r
}

func (r *run) run() error {
	unwatch := r.watch()
	defer r.queue.flush()
	defer unwatch()
	defer r.endLive()

	r.root = r.start()
	if r.root == nil {
		r.root = r.wait()
	}
	return join(append([]error{r.root}, r.stop()...)...)
}

// wait blocks until the app is asked to stop or a server fails, and returns the
// error of that server.
func (r *run) wait() error {
	select {
	case <-r.app.asked.Done():
	case <-r.broken.Done():
	}
	return context.Cause(r.broken)
}

// watch turns signals and the end of the parent ctx into a stop, from before
// the first step on. The second signal forces; then the handler is removed, so
// that a third one has its default effect.
func (r *run) watch() (unwatch func()) {
	signals := make(chan os.Signal, 2)
	if len(r.opts.sigs) > 0 { // Notify without signals would mean all of them
		r.opts.notify(signals, r.opts.sigs...)
	}
	over, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		parent, count := r.opts.ctx.Done(), 0
		for {
			select {
			case sig := <-signals:
				r.queue.emit(Event{Kind: Signaled, Text: sig.String()})
				r.app.ask()
				if count++; count == 2 {
					r.hurry()
					signal.Stop(signals)
				}
			case <-parent:
				parent = nil
				r.app.ask()
			case <-over:
				return
			}
		}
	}()
	return func() {
		signal.Stop(signals)
		close(over)
		<-ended
	}
}

func (r *run) hurry() {
	r.mu.Lock()
	r.forcedAt = time.Now()
	r.mu.Unlock()
	r.queue.emit(Event{Kind: Warning, Text: "app: second signal: every wait and running step of the stop is ended"})
	r.force(errSecondSignal)
}

// do runs one step between its two events.
func (r *run) do(s step) error {
	began := time.Now()
	r.queue.emit(Event{Kind: StepBegan, Step: s.name})
	err := s.run()
	r.queue.emit(Event{Kind: StepEnded, Step: s.name, Took: time.Since(began), Err: err})
	return err
}

// setPhase tells the health states of all servers where the lifecycle stands.
func (r *run) setPhase(p health.Phase) {
	for i, srv := range r.opts.servers {
		h, ok := srv.(interface{ Health() *health.State })
		if !ok {
			continue
		}
		err := guarded(serverName(i, srv)+" Health", func() error {
			if st := h.Health(); st != nil {
				st.SetPhase(p)
			}
			return nil
		})
		if err != nil {
			r.queue.emit(Event{Kind: Warning, Err: err, Text: err.Error()})
		}
	}
}
