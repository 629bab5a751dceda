package local

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/internal/feed"
	"github.com/materpc/materpc/registry/internal/serial"
)

const (
	// watchedPause and idlePause are the times between two looks with and
	// without a watcher.
	watchedPause = 100 * time.Millisecond
	idlePause    = time.Second
	// attention is how long the reader goes on looking after a GetService, so
	// that the next one knows who has beaten.
	attention = 10 * time.Second
	// lookAttempts is how often a look is taken when files go away meanwhile.
	lookAttempts = 3
)

// reader looks at the directory for all watchers of one Registry. Its
// goroutine runs only while somebody is interested.
type reader struct {
	files  files
	events *registry.Events
	look   chan struct{} // held by whoever looks: a turn that a ctx can wait for

	mu       sync.Mutex
	table    *table
	looked   time.Time // monotonic; zero before the first look
	asked    time.Time // of the last GetService
	broken   bool
	closed   bool
	watchers map[string]map[*feed.Feed]struct{}
	pushed   map[string][]*kregistry.ServiceInstance
	wake     chan struct{} // has room for one: a watcher came
	stop     context.CancelFunc
	ended    chan struct{} // of the goroutine; nil when it does not run
}

func newReader(f files, events *registry.Events) *reader {
	return &reader{
		files:    f,
		events:   events,
		look:     make(chan struct{}, 1),
		table:    newTable(),
		watchers: make(map[string]map[*feed.Feed]struct{}),
		pushed:   make(map[string][]*kregistry.ServiceInstance),
		wake:     make(chan struct{}, 1),
	}
}

// get looks now and lists a service.
func (r *reader) get(ctx context.Context, name string) ([]*kregistry.ServiceInstance, error) {
	r.mu.Lock()
	r.asked = time.Now()
	err := r.attend()
	r.mu.Unlock()
	if err != nil {
		return nil, err
	}
	if err := r.scan(ctx); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return registry.CloneAll(r.table.live(name)), nil
}

// watch adds a feed for a service. The caller's first Next has the list that
// stands at the next look, which is due at once.
func (r *reader) watch(ctx context.Context, name string) (*feed.Feed, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f := feed.New(ctx)
	if r.closed {
		_ = f.Stop()
		return nil, errClosed
	}
	if r.watchers[name] == nil {
		r.watchers[name] = make(map[*feed.Feed]struct{})
	}
	r.watchers[name][f] = struct{}{}
	delete(r.pushed, name) // the newcomer has seen nothing yet
	f.OnEnd(func() { r.unwatch(name, f) })
	if err := r.attend(); err != nil {
		return nil, err
	}
	select {
	case r.wake <- struct{}{}:
	default:
	}
	return f, nil
}

func (r *reader) unwatch(name string, f *feed.Feed) {
	r.mu.Lock()
	defer r.mu.Unlock()
	delete(r.watchers[name], f)
	if len(r.watchers[name]) == 0 {
		delete(r.watchers, name)
		delete(r.pushed, name)
	}
}

// attend has the goroutine run. r.mu is held.
func (r *reader) attend() error {
	if r.closed {
		return errClosed
	}
	if r.ended != nil {
		return nil
	}
	ctx, stop := context.WithCancel(context.Background())
	r.stop, r.ended = stop, make(chan struct{})
	go r.run(ctx, r.ended)
	return nil
}

// run looks again and again until nobody is interested any more.
func (r *reader) run(ctx context.Context, ended chan struct{}) {
	defer close(ended)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-r.wake:
		case <-timer.C:
		}
		_ = r.scan(ctx) // told by an event
		r.bury()
		pause, interested := r.pause()
		if !interested {
			return
		}
		timer.Reset(pause)
	}
}

// pause returns the time to the next look, or ends the goroutine.
func (r *reader) pause() (time.Duration, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case len(r.watchers) > 0:
		return watchedPause, true
	case time.Since(r.asked) < attention:
		return idlePause, true
	}
	// What was seen is of no use to a reader that comes back much later.
	r.stop()
	r.stop, r.ended, r.table, r.looked = nil, nil, newTable(), time.Time{}
	return 0, false
}

// scan looks at the whole directory once and pushes what has changed.
func (r *reader) scan(ctx context.Context) error {
	select {
	case r.look <- struct{}{}:
	case <-ctx.Done():
		return ctx.Err()
	}
	free := func() { <-r.look }
	found, answered, err := serial.Bounded(ctx, r.readAll, func(map[string][]byte, error) { free() })
	if !answered {
		return err
	}
	defer free()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.note(found, err)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("the directory cannot be read: %w", err)
	}
	r.push()
	return nil
}

// readAll reads every file that may be a record. One that cannot be read is
// as it was: unreadable is not gone. A file that goes away while we read may
// be the first of a whole directory, and one that a list misses may be there,
// so the look is taken again.
func (r *reader) readAll() (found map[string][]byte, err error) {
	for range lookAttempts {
		var settled bool
		if found, settled, err = r.readOnce(); settled {
			return found, err
		}
	}
	return found, err
}

func (r *reader) readOnce() (found map[string][]byte, settled bool, err error) {
	names, err := r.files.list()
	if errors.Is(err, fs.ErrNotExist) {
		return nil, true, errors.Join(err, r.files.create())
	}
	if err != nil {
		return nil, true, err
	}
	found, settled = make(map[string][]byte, len(names)), true
	for _, name := range names {
		if !strings.HasSuffix(name, extension) && !isTemp(name) {
			continue
		}
		raw, err := r.files.read(name)
		switch {
		case err == nil:
			found[name] = raw
		case errors.Is(err, fs.ErrNotExist):
			settled = settled && isTemp(name) // those come and go
		default:
			found[name] = nil // there, but not to be read
		}
	}
	return found, settled && r.complete(found), nil
}

// complete says whether a look found all that was there before, or a second
// list agrees that the rest is gone. Where the file system does not tell types, os.ReadDir
// looks at each entry by its path and leaves out what is not there: of a
// directory that is moved away meanwhile it lists a part, without an error.
func (r *reader) complete(found map[string][]byte) bool {
	missing := r.missing(found)
	if len(missing) == 0 {
		return true
	}
	again, err := r.files.list()
	return err == nil && !slices.ContainsFunc(again, func(name string) bool { return missing[name] })
}

// missing returns the records seen last that were not found.
func (r *reader) missing(found map[string][]byte) map[string]bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	var missing map[string]bool
	for name, s := range r.table.sightings {
		if _, there := found[name]; there || s.orphaned || isTemp(name) {
			continue
		}
		if missing == nil {
			missing = make(map[string]bool)
		}
		missing[name] = true
	}
	return missing
}

// note enters a look into the table. r.mu is held.
func (r *reader) note(found map[string][]byte, err error) {
	elapsed := r.elapsed()
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		if !r.broken {
			r.events.Send(registry.Event{Kind: registry.ReadFailed, Err: err})
		}
		r.broken = true
		return
	}
	if r.broken {
		r.broken = false
		r.events.Send(registry.Event{Kind: registry.ReadRecovered})
	}
	if err != nil {
		r.table.wipe(elapsed)
		return
	}
	for _, event := range r.table.look(found, elapsed) {
		r.events.Send(event)
	}
}

// elapsed is the time since the last look as far as it was watched: a reader
// that slept (a stopped process, a suspended machine) has not seen that nobody
// beat. r.mu is held.
func (r *reader) elapsed() time.Duration {
	now := time.Now()
	elapsed := time.Duration(0)
	if !r.looked.IsZero() {
		limit := 2 * idlePause
		if len(r.watchers) > 0 {
			limit = 2 * watchedPause
		}
		elapsed = min(now.Sub(r.looked), limit)
	}
	r.looked = now
	return elapsed
}

// push hands each watched list that changed to its watchers. r.mu is held.
func (r *reader) push() {
	for name, feeds := range r.watchers {
		list := r.table.live(name)
		if last, ok := r.pushed[name]; ok && slices.Equal(last, list) {
			continue // the same objects: nothing changed
		}
		r.pushed[name] = list
		for f := range feeds {
			f.Push(list)
		}
	}
}

// bury removes files whose owners died long ago.
func (r *reader) bury() {
	r.mu.Lock()
	dead := r.table.dead()
	r.mu.Unlock()
	for name, raw := range dead {
		if r.files.bury(name, raw) == nil {
			r.mu.Lock()
			r.table.forget(name)
			r.mu.Unlock()
		}
	}
}

// close ends the goroutine and all feeds.
func (r *reader) close(ctx context.Context) error {
	r.mu.Lock()
	r.closed = true
	ended := r.ended
	if r.stop != nil {
		r.stop()
	}
	var feeds []*feed.Feed
	for _, of := range r.watchers {
		for f := range of {
			feeds = append(feeds, f)
		}
	}
	r.mu.Unlock()
	for _, f := range feeds {
		_ = f.Stop()
	}
	if ended == nil {
		return nil
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("a look at the directory hangs: %w", ctx.Err())
	}
}
