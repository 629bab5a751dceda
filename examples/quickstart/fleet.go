package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"
)

// fleet is a fixed number of slots, each with one server at a time. The next
// server of a slot is a new process with a new id.
type fleet struct {
	window   time.Duration
	registry string
	prefix   string      // of all ids
	fail     func(error) // told when a server ends that nobody asked to

	watchers sync.WaitGroup
	mu       sync.Mutex
	slots    []slot
	lives    []*life
	byID     map[string]*life
}

// slot is one place in the fleet.
type slot struct {
	generation int
	process    *process // nil while there is none
	life       *life    // of the newest process
}

// life is what became of one process, for whoever looks.
type life struct {
	id, address string
	slot, pid   int
	state       state
	fate        string
}

// state is where a process stands.
type state int

const (
	starting state = iota
	serving
	leaving // SIGTERM was sent
	ended
	killed // SIGKILL was sent
)

func (s state) String() string {
	return [...]string{"starting", "serving", "leaving", "ended", "killed"}[s]
}

func newFleet(c config, registryName string, fail func(error)) *fleet {
	prefix := service
	if c.registry != "" { // others may run a fleet there
		prefix = fmt.Sprintf("%s@%d", service, os.Getpid())
	}
	return &fleet{
		window: c.window, registry: registryName, prefix: prefix, fail: fail,
		slots: make([]slot, c.servers), byID: make(map[string]*life),
	}
}

// start fills all slots and returns when every server serves. After an error
// the caller calls stop all the same.
func (f *fleet) start(ctx context.Context) error {
	errs := make([]error, len(f.slots))
	var group sync.WaitGroup
	for i := range f.slots { // launched in turn, so that process ids are in the order of the slots
		served := f.launch(ctx, i)
		group.Go(func() { errs[i] = served() })
	}
	group.Wait()
	return errors.Join(errs...)
}

// fill starts the next server of an empty slot.
func (f *fleet) fill(ctx context.Context, i int) error { return f.launch(ctx, i)() }

// launch starts the next server of an empty slot; served, which must be called,
// waits until it serves.
func (f *fleet) launch(ctx context.Context, i int) (served func() error) {
	f.mu.Lock()
	s := &f.slots[i]
	s.generation++
	l := &life{id: fmt.Sprintf("%s-%d.%d", f.prefix, i+1, s.generation), slot: i, fate: "did not start"}
	s.life = l
	f.lives = append(f.lives, l)
	f.byID[l.id] = l
	f.mu.Unlock()

	p, err := startProcess(ctx, l.id, f.registry, f.window)
	return func() error {
		if err == nil {
			err = p.awaitServing(ctx)
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		if err != nil {
			l.state = ended
			return err
		}
		l.state, l.address, l.pid, l.fate = serving, p.address, p.pid(), "served to the end"
		s.process = p
		f.watchers.Go(func() { f.watch(p) })
		return nil
	}
}

// watch reports a server that ends although nobody asked it to.
func (f *fleet) watch(p *process) {
	<-p.ended
	if !p.leaving.Load() {
		f.note(p.id, ended, "ended by itself")
		f.fail(p.failure("ended by itself"))
	}
}

// terminate empties a slot with SIGTERM and returns how long the drain took.
func (f *fleet) terminate(i int) (time.Duration, error) {
	p := f.take(i)
	if p == nil {
		return 0, nil
	}
	f.note(p.id, leaving, "")
	took, err := p.terminate(f.window)
	f.note(p.id, ended, fmt.Sprintf("SIGTERM, left in %s", seconds(took)))
	return took, err
}

// kill empties a slot with SIGKILL.
func (f *fleet) kill(i int) {
	if p := f.take(i); p != nil {
		f.note(p.id, killed, "SIGKILL") // first, so that no error comes before its explanation
		p.kill()
	}
}

func (f *fleet) take(i int) *process {
	f.mu.Lock()
	defer f.mu.Unlock()
	p := f.slots[i].process
	f.slots[i].process = nil
	return p
}

// stop ends all servers that are left and waits for everything of the fleet.
func (f *fleet) stop() error {
	errs := make([]error, len(f.slots))
	var group sync.WaitGroup
	for i := range f.slots {
		group.Go(func() {
			p := f.take(i)
			if p != nil && !p.gone() {
				_, errs[i] = p.terminate(f.window)
			}
		})
	}
	group.Wait()
	f.watchers.Wait()
	return errors.Join(errs...)
}

func (f *fleet) note(id string, s state, fate string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	l := f.byID[id]
	l.state = s
	if fate != "" {
		l.fate = fate
	}
}

// stateOf returns where the process of an id stands; an id that is not of this
// fleet (a shared registry has others) counts as serving.
func (f *fleet) stateOf(id string) state {
	f.mu.Lock()
	defer f.mu.Unlock()
	if l, ok := f.byID[id]; ok {
		return l.state
	}
	return serving
}

// newest returns the newest life of each slot.
func (f *fleet) newest() []life {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]life, 0, len(f.slots))
	for _, s := range f.slots {
		if s.life != nil {
			list = append(list, *s.life)
		}
	}
	return list
}

// history returns all lives, in the order in which they began.
func (f *fleet) history() []life {
	f.mu.Lock()
	defer f.mu.Unlock()
	list := make([]life, len(f.lives))
	for i, l := range f.lives {
		list[i] = *l
	}
	return list
}
