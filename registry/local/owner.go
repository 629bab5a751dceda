package local

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/internal/serial"
)

// owner keeps one record of this process alive: it is the only writer of its
// file, and its heartbeat depends on nobody's ctx.
type owner struct {
	files  files
	events *registry.Events
	name   string // of the file
	nonce  string // of the process's registry
	forget func() // told when a first write has failed and left nothing

	// turn is held by whoever works on the file; it can be waited for with a
	// ctx, and a file system that hangs keeps it.
	turn chan struct{}

	mu    sync.Mutex
	gone  bool // withdrawn: whoever holds the turn removes the file
	stop  context.CancelFunc
	ended chan struct{} // closed when the heartbeat has ended; nil before it began

	// Under turn.
	instance *kregistry.ServiceInstance // the newest data that was registered
	written  []byte                     // what the file is believed to hold
	beat     uint64
	foreign  []byte // another owner's record, as seen last
	idle     int    // heartbeats since foreign changed
	failing  bool
	listener func(registry.Event) // of whoever registered last and had one
	removed  bool                 // withdrawn, and the file is gone: a later one is another owner's
}

func (o *owner) acquire(ctx context.Context) error {
	select { // a free turn counts also when ctx ends at the same moment
	case o.turn <- struct{}{}:
		return nil
	default:
	}
	select {
	case o.turn <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// release gives the turn back. A record that was withdrawn while the turn was
// held is removed first: that is the fence against a write in flight.
func (o *owner) release() {
	if o.withdrawn() && o.settle() == nil && !o.began() { // Deregister, if it still waits, tries and tells
		o.forget()
	}
	<-o.turn
}

// settle removes the file of a withdrawn record, once. The turn is held.
func (o *owner) settle() error {
	if o.removed {
		return nil
	}
	err := o.removeOwn()
	o.removed = err == nil
	return err
}

// began says whether the record ever had a heartbeat.
func (o *owner) began() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.ended != nil
}

func (o *owner) withdrawn() bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.gone
}

// write puts data into the file, and finds out by reading when that fails.
// The turn is held.
func (o *owner) write(in *kregistry.ServiceInstance) ([]byte, error) {
	o.beat++
	data, err := encode(in, o.nonce, os.Getpid(), o.beat)
	if err != nil {
		return nil, err
	}
	if err := o.files.replace(o.name, data); err != nil {
		found, unreadable := o.files.read(o.name)
		if unreadable != nil || !bytes.Equal(found, data) {
			return nil, err
		}
	}
	return data, nil
}

// register writes newer data. What it replaces stays in force, file and
// heartbeat, unless the write is known to be done in time; a first write that
// is not is taken away again. The turn is held and given back.
func (o *owner) register(ctx context.Context, in *kregistry.ServiceInstance) error {
	data, answered, err := serial.Bounded(ctx, func() ([]byte, error) { return o.write(in) }, func([]byte, error) {
		o.abandon()
		o.release()
	})
	if !answered {
		return err // the late answer gives the turn back
	}
	defer o.release()
	if err != nil {
		o.abandon()
		return err
	}
	o.instance, o.written = in, data
	if listener := registry.ListenerFromContext(ctx); listener != nil {
		o.listener = listener
	}
	o.foreign = nil
	o.begin()
	return nil
}

// abandon undoes a write that failed or came late. With an older version in
// force the next heartbeat restores that.
func (o *owner) abandon() {
	if o.instance == nil {
		o.withdraw()
	}
}

// begin starts the heartbeat, once.
func (o *owner) begin() {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.gone || o.ended != nil {
		return
	}
	ctx, stop := context.WithCancel(context.Background())
	o.stop, o.ended = stop, make(chan struct{})
	go func() {
		defer close(o.ended)
		o.keep(ctx)
	}()
}

// withdraw ends the heartbeat and fences every write; it returns what to wait
// for.
func (o *owner) withdraw() <-chan struct{} {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.gone = true
	if o.stop != nil {
		o.stop()
	}
	return o.ended
}

// deregister takes the file away and waits for the heartbeat, bounded by ctx.
func (o *owner) deregister(ctx context.Context) error {
	ended := o.withdraw()
	if err := o.acquire(ctx); err != nil {
		return err // whoever holds the turn removes the file
	}
	_, answered, err := serial.Bounded(ctx, func() (struct{}, error) { return struct{}{}, o.settle() }, func(struct{}, error) { <-o.turn })
	if !answered {
		return err
	}
	<-o.turn
	if err != nil || ended == nil {
		return err
	}
	select {
	case <-ended:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// removeOwn removes the file if it is ours, and finds out by reading when
// that fails. The turn is held.
func (o *owner) removeOwn() error {
	found, err := o.files.read(o.name)
	if errors.Is(err, fs.ErrNotExist) || err == nil && o.isForeign(found) {
		return nil
	}
	if err := o.files.remove(o.name); err != nil {
		if _, absent := o.files.read(o.name); errors.Is(absent, fs.ErrNotExist) {
			return nil
		}
		return err
	}
	return nil
}

// isForeign says whether a file is a whole record of another owner.
func (o *owner) isForeign(raw []byte) bool {
	r, err := decode(o.name, raw)
	if errors.Is(err, errNewerFormat) {
		return true
	}
	return err == nil && r.Owner != o.nonce
}

// keep is the heartbeat; it never gives up.
func (o *owner) keep(ctx context.Context) {
	ticker := time.NewTicker(heartbeat)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
		}
		if o.acquire(ctx) != nil {
			return
		}
		if ctx.Err() == nil {
			o.report(o.beatOnce())
		}
		o.release()
	}
}

// report tells a failing heartbeat once per outage.
func (o *owner) report(err error) {
	if err != nil && !o.failing {
		o.send(registry.HeartbeatFailed, err)
	}
	o.failing = err != nil
}

func (o *owner) send(kind registry.EventKind, err error) {
	event := registry.Event{Kind: kind, Service: o.instance.Name, Instance: o.instance.ID, Err: err}
	o.events.Send(event)
	if o.listener != nil {
		_ = serial.Guard(func() { o.listener(event) })
	}
}

// beatOnce renews the record: 20 bytes in place when the file is as we left
// it, the whole newest record when it is not. The turn is held.
func (o *owner) beatOnce() error {
	found, err := o.files.read(o.name)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return o.restore(errors.New("its file was gone"))
	case err != nil:
		return err
	case bytes.Equal(found, o.written):
		o.beat++
		if err := o.files.patch(o.name, beatText(o.beat), int64(len(beatPrefix))); err != nil {
			return err
		}
		o.written = bytes.Clone(found)
		copy(o.written[len(beatPrefix):], beatText(o.beat))
		o.foreign = nil
		return nil
	case o.isForeign(found):
		return o.contest(found)
	}
	return o.restore(errors.New("its file held something else"))
}

// contest leaves a record to another owner that keeps it alive, most likely a
// newer process with the same id, and takes it back when that one is dead.
func (o *owner) contest(found []byte) error {
	if !bytes.Equal(found, o.foreign) {
		if o.foreign == nil {
			o.send(registry.RecordContested, rival(found))
		}
		o.foreign, o.idle = found, 0
		return nil
	}
	if o.idle++; time.Duration(o.idle)*heartbeat <= expiry {
		return nil
	}
	return o.restore(errors.New("the other owner of it is dead"))
}

// rival says who has our record now.
func rival(found []byte) error {
	who := "another registry"
	var r record
	if json.Unmarshal(found, &r) == nil && r.PID > 0 {
		who = fmt.Sprintf("process %d", r.PID)
	}
	return fmt.Errorf("%s registered the same name and id: while its record is renewed this instance gets no calls; give each an id of its own", who)
}

func (o *owner) restore(cause error) error {
	data, err := o.write(o.instance)
	if err != nil {
		return err
	}
	o.written, o.foreign = data, nil
	o.send(registry.RecordRestored, cause)
	return nil
}
