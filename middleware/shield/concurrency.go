package shield

import (
	"context"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"
)

// Concurrency bounds how many calls run at once, and how many wait for that. A
// call holds its slot until its work has returned. Without a queue, or while
// slots are free, it costs one compare-and-swap each way.
//
// A call whose ctx ends in the queue returns the ctx's error: that is no
// rejection, and takes no slot.
type Concurrency struct {
	// Max is how many calls run at once. 0 means 10.
	Max int
	// Queue is how many more may wait for a slot. 0 means none.
	Queue int
	// QueueFor bounds the wait. 0 means that the caller's ctx alone does.
	QueueFor time.Duration
	// Priority lets calls of higher priority go first, see [WithPriority]; equals
	// keep their order. When the queue is full, a call takes the place of the
	// newest one of the lowest priority, if that is lower than its own. Running
	// calls are never touched.
	Priority bool
}

const defaultMax = 10

func (l Concurrency) plan(p *planner) {
	fault := func(bad bool, field string, value any, remedy string) {
		if bad {
			p.fault("Concurrency", field, value, remedy)
		}
	}
	fault(l.Max < 0, "Max", l.Max, "give 0 for 10, or more")
	fault(l.Queue < 0, "Queue", l.Queue, "give 0 for none, or more")
	fault(l.QueueFor < 0, "QueueFor", l.QueueFor, "give 0 for as long as the caller waits, or more")
	fault(l.QueueFor > 0 && l.Queue == 0, "QueueFor", l.QueueFor, "leave it out, or give Queue, which it is for")
	fault(l.Priority && l.Queue == 0, "Priority", l.Priority, "leave it out, or give Queue, which it is for")
	p.admit(l, "concurrency", l.String(), l.Queue > 0, func() admitter { return newConcurrency(l) })
}

// String describes the layer with its defaults.
func (l Concurrency) String() string {
	text := fmt.Sprintf("Concurrency(%d", orDefault(l.Max, defaultMax))
	if l.Queue > 0 {
		text += fmt.Sprintf(", queue %d", l.Queue)
	}
	if l.QueueFor > 0 {
		text += fmt.Sprintf(" for %v", l.QueueFor)
	}
	if l.Priority {
		text += ", by priority"
	}
	return text + ")"
}

// concurrencyState counts in one word who runs (low half) and who waits (high
// half). That somebody waits implies that all slots are taken: a call joins the
// queue only against a full word, and whoever leaves while one waits hands over
// the slot instead of freeing it. So nobody overtakes and no slot is forgotten.
type concurrencyState struct {
	word     atomic.Uint64
	max      uint64
	room     uint64
	queueFor time.Duration
	priority bool

	mu    sync.Mutex // held to change the high half, with the queue
	queue queue
}

const (
	oneWaiting = 1 << 32
	runMask    = oneWaiting - 1
)

func newConcurrency(l Concurrency) *concurrencyState {
	// More calls than half a word holds do not fit into memory.
	half := func(n int) uint64 { return min(uint64(n), math.MaxInt32) }
	return &concurrencyState{
		max: half(orDefault(l.Max, defaultMax)), room: half(l.Queue), queueFor: l.QueueFor, priority: l.Priority,
	}
}

func (c *concurrencyState) enter(ctx context.Context, now int64) (ticket, error) {
	if c.take() {
		return ticket{began: now}, nil
	}
	if c.room == 0 {
		return ticket{}, &Rejected{Reason: ConcurrencyLimited}
	}
	return c.wait(ctx)
}

// take takes a slot, if one is free.
func (c *concurrencyState) take() bool {
	for {
		word := c.word.Load()
		if word&runMask >= c.max {
			return false
		}
		if c.word.CompareAndSwap(word, word+1) {
			return true
		}
	}
}

func (c *concurrencyState) exit(ticket, end) { c.leave() }

// leave frees a slot, or hands it to the next in the queue.
func (c *concurrencyState) leave() {
	for {
		word := c.word.Load()
		switch {
		case word >= oneWaiting:
			if c.handOver() {
				return
			}
		case word == 0:
			return // given back twice
		case c.word.CompareAndSwap(word, word-1):
			return
		}
	}
}

// handOver reports false when the queue has emptied meanwhile.
func (c *concurrencyState) handOver() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	w := c.queue.next()
	if w == nil {
		return false
	}
	c.drop(w)
	w.decide(granted)
	return true
}

// drop takes a waiter out of the queue. The caller holds mu.
func (c *concurrencyState) drop(w *waiter) {
	c.queue.remove(w)
	c.word.Add(^uint64(oneWaiting - 1)) // minus oneWaiting
}

func (c *concurrencyState) wait(ctx context.Context) (ticket, error) {
	w := &waiter{ready: make(chan struct{})}
	if c.priority {
		w.priority = priorityOf(ctx)
	}
	switch c.join(w) {
	case granted:
		return ticket{began: monotonic()}, nil
	case evicted:
		return ticket{}, &Rejected{Reason: ConcurrencyLimited}
	case undecided:
	}
	var expired <-chan time.Time
	if c.queueFor > 0 {
		timer := time.NewTimer(c.queueFor)
		defer timer.Stop()
		expired = timer.C
	}
	select {
	case <-w.ready:
	case <-ctx.Done():
	case <-expired:
		awaitDeadline(ctx)
	}
	return c.conclude(ctx, w)
}

// awaitDeadline lets a ctx end whose deadline is over, but whose timer has not run
// yet: of two ends at one moment the caller's counts. A ctx that never ends in
// spite of its deadline is not waited for.
func awaitDeadline(ctx context.Context) {
	deadline, ok := ctx.Deadline()
	if !ok || time.Now().Before(deadline) {
		return
	}
	grace := time.NewTimer(time.Millisecond)
	defer grace.Stop()
	select {
	case <-ctx.Done():
	case <-grace.C:
	}
}

// join puts the waiter into the queue; or it gets a slot that has become free;
// or, as evicted, there is no room.
func (c *concurrencyState) join(w *waiter) fate {
	c.mu.Lock()
	defer c.mu.Unlock()
	for {
		word := c.word.Load()
		switch {
		case word&runMask < c.max:
			if c.word.CompareAndSwap(word, word+1) {
				return granted
			}
		case word/oneWaiting < c.room:
			if c.word.CompareAndSwap(word, word+oneWaiting) {
				c.queue.push(w)
				return undecided
			}
		default:
			least := c.queue.least()
			if least.priority >= w.priority {
				return evicted
			}
			c.queue.remove(least)
			least.decide(evicted)
			c.queue.push(w)
			return undecided
		}
	}
}

// conclude settles what became of a waiter that has woken up. The caller's end
// is looked at first, and last: a slot that came too late is passed on.
func (c *concurrencyState) conclude(ctx context.Context, w *waiter) (ticket, error) {
	c.mu.Lock()
	fate := w.fate
	if fate == undecided {
		c.drop(w)
	}
	c.mu.Unlock()
	if err := ctx.Err(); err != nil {
		if fate == granted {
			c.leave()
		}
		return ticket{}, err
	}
	switch fate {
	case granted:
		return ticket{began: monotonic()}, nil
	case evicted:
		return ticket{}, &Rejected{Reason: QueueEvicted}
	case undecided:
	}
	return ticket{}, &Rejected{Reason: QueueTimeout}
}

// reset changes nothing: slots in use stay in use.
func (c *concurrencyState) reset() {}

func (c *concurrencyState) state(int64) LayerState {
	word := c.word.Load()
	return LayerState{Limit: int(c.max), InFlight: int(word & runMask), Queued: int(word / oneWaiting)}
}
