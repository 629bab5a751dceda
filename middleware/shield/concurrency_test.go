package shield

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// mustHave: so many run and wait, and the queue says the same.
func mustHave(t *testing.T, c *concurrencyState, running, waiting int) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	queued := 0
	for _, l := range c.queue.lines {
		for w := l.first; w != nil; w = w.after {
			queued++
		}
	}
	if s := c.state(0); s.InFlight != running || s.Queued != waiting || queued != waiting {
		t.Errorf("%d run, %d wait, %d in the queue; want %d and %d", s.InFlight, s.Queued, queued, running, waiting)
	}
}

// queued is a call that waits in the background.
type queued struct {
	pass ticket
	err  error
	took time.Duration
	done chan struct{}
}

// enqueue returns when the call waits, or is through.
func enqueue(ctx context.Context, c *concurrencyState) *queued {
	q := &queued{done: make(chan struct{})}
	start := time.Now()
	go func() {
		defer close(q.done)
		q.pass, q.err = c.enter(ctx, monotonic())
		q.took = time.Since(start)
	}()
	synctest.Wait()
	return q
}

// mustEnd waits for the call; want is its error, nil for admitted.
func (q *queued) mustEnd(t *testing.T, want error, after time.Duration) {
	t.Helper()
	<-q.done
	if !errors.Is(q.err, want) || q.took != after {
		t.Errorf("%v (%v) after %v, want %v after %v", q.err, refusal(q.err).Reason, q.took, want, after)
	}
}

func TestConcurrencyWithoutQueue(t *testing.T) {
	t.Parallel()
	c := newConcurrency(Concurrency{})
	for range 10 {
		mustEnter(t, c)
	}
	mustRefuse(t, c, Rejected{Reason: ConcurrencyLimited})
	mustHave(t, c, 10, 0)
	c.exit(ticket{}, ending(panicked))
	c.reset() // slots in use stay in use
	mustHave(t, c, 9, 0)
	mustEnter(t, c)
	mustRefuse(t, c, Rejected{Reason: ConcurrencyLimited})
}

func TestConcurrencyExitTwice(t *testing.T) {
	t.Parallel()
	c := newConcurrency(Concurrency{Max: 1})
	pass := mustEnter(t, c)
	c.exit(pass, end{})
	c.exit(pass, end{})
	mustHave(t, c, 0, 0)
	mustEnter(t, c)
	mustRefuse(t, c, Rejected{Reason: ConcurrencyLimited})
}

func TestConcurrencyQueuesInOrder(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(Concurrency{Max: 1, Queue: 2})
		pass := mustEnter(t, c)
		first, second := enqueue(t.Context(), c), enqueue(WithPriority(t.Context(), 9), c) // it counts only with Priority
		mustRefuse(t, c, Rejected{Reason: ConcurrencyLimited})
		mustHave(t, c, 1, 2)
		time.Sleep(time.Second)
		began := monotonic()
		c.exit(pass, end{})
		first.mustEnd(t, nil, time.Second)
		if first.pass.began != began {
			t.Errorf("began at %d, want %d: the wait is no work", first.pass.began, began)
		}
		mustHave(t, c, 1, 1)
		c.exit(first.pass, end{})
		second.mustEnd(t, nil, time.Second)
		c.exit(second.pass, end{})
		mustHave(t, c, 0, 0)
	})
}

func TestConcurrencyQueueTimeout(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(Concurrency{Max: 1, Queue: 3, QueueFor: 20 * time.Millisecond})
		mustEnter(t, c)
		expires := enqueue(t.Context(), c)
		ctx, cancel := context.WithCancel(t.Context())
		gone := enqueue(ctx, c)
		// Both at once: the caller's end wins.
		both, stop := context.WithTimeout(t.Context(), 20*time.Millisecond)
		defer stop()
		tied := enqueue(both, c)
		time.Sleep(10 * time.Millisecond)
		cancel()
		gone.mustEnd(t, context.Canceled, 10*time.Millisecond)
		expires.mustEnd(t, &Rejected{Reason: QueueTimeout}, 20*time.Millisecond)
		tied.mustEnd(t, context.DeadlineExceeded, 20*time.Millisecond)
		if rejected(gone.err) || rejected(tied.err) {
			t.Errorf("%v, %v: a caller's end is no rejection", gone.err, tied.err)
		}
		mustHave(t, c, 1, 0)
	})
}

func TestConcurrencyPriority(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(Concurrency{Max: 1, Queue: 4, Priority: true})
		enter := func(priority int) *queued { return enqueue(WithPriority(t.Context(), priority), c) }
		pass := mustEnter(t, c)
		low, lower, newest, mid := enter(-1), enter(-2), enter(-2), enqueue(t.Context(), c)
		mustHave(t, c, 1, 4)
		same := enter(-2)
		same.mustEnd(t, &Rejected{Reason: ConcurrencyLimited}, 0)
		high := enter(5)
		newest.mustEnd(t, &Rejected{Reason: QueueEvicted}, 0)
		mustHave(t, c, 1, 4)
		high2 := enter(5)
		lower.mustEnd(t, &Rejected{Reason: QueueEvicted}, 0)
		for _, next := range []*queued{high, high2, mid, low} {
			c.exit(pass, end{})
			next.mustEnd(t, nil, 0)
			pass = next.pass
		}
		mustHave(t, c, 1, 0)
	})
}

// endless is a ctx with a deadline that ends nothing.
type endless struct{ context.Context }

func (endless) Deadline() (time.Time, bool) { return time.Now(), true }

func TestConcurrencyDeadlineThatEndsNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(Concurrency{Max: 1, Queue: 1, QueueFor: time.Second})
		mustEnter(t, c)
		enqueue(endless{t.Context()}, c).mustEnd(t, &Rejected{Reason: QueueTimeout}, time.Second+time.Millisecond)
	})
}

// TestCaseB62AbandonedWaitersTakeNoPermit.
func TestCaseB62AbandonedWaitersTakeNoPermit(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := Must(New("test", Concurrency{Max: 1, Queue: 10, QueueFor: time.Second}))
		holder, err := s.Enter(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), 10*time.Millisecond)
				defer cancel()
				start := time.Now()
				err := s.Do(ctx, func(context.Context) error { return nil })
				if err != ctx.Err() || time.Since(start) != 10*time.Millisecond { //nolint:errorlint // its own
					t.Errorf("%v after %v", err, time.Since(start))
				}
			})
		}
		wg.Wait()
		_ = holder.Exit(nil)
		start := time.Now()
		if err := s.Do(t.Context(), func(context.Context) error { return nil }); err != nil || time.Since(start) != 0 {
			t.Errorf("%v after %v", err, time.Since(start))
		}
	})
}

// TestCaseB62StormLeavesAllPermits runs 10,000 rounds of calls with deadlines of
// 0 to 2 ms against work of 1 ms.
func TestCaseB62StormLeavesAllPermits(t *testing.T) {
	t.Parallel()
	for _, config := range []Concurrency{
		{Max: 1, Queue: 10, QueueFor: time.Second},
		{Max: 3, Queue: 4, QueueFor: 900 * time.Microsecond, Priority: true},
	} {
		t.Run(config.String(), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) { storm(t, config) })
		})
	}
}

func storm(t *testing.T, config Concurrency) {
	const workers, rounds = 20, 500
	c := newConcurrency(config)
	var mu sync.Mutex
	ends := map[string]int{}
	var wg sync.WaitGroup
	for worker := range uint64(workers) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(worker, 7))
			for range rounds {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(random.IntN(2000))*time.Microsecond)
				pass, err := c.enter(WithPriority(ctx, random.IntN(3)), monotonic())
				if err == nil {
					if got := c.state(0).InFlight; got > config.Max {
						t.Errorf("%d run", got)
					}
					time.Sleep(time.Millisecond)
					c.exit(pass, end{})
				}
				cancel()
				mu.Lock()
				ends[fmt.Sprint(err, refusal(err).Reason)]++
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	if len(ends) < 3 {
		t.Errorf("only %v happened", ends)
	}
	mustHave(t, c, 0, 0)
	for range config.Max {
		mustEnter(t, c)
	}
	mustHave(t, c, config.Max, 0)
}

// TestConcurrencySlotOfOneWhoGaveUp: a slot handed to a waiter whose caller has
// just gone passes on to the next.
func TestConcurrencySlotOfOneWhoGaveUp(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		c := newConcurrency(Concurrency{Max: 1, Queue: 2})
		pass := mustEnter(t, c)
		ctx, cancel := context.WithCancel(t.Context())
		w := &waiter{ready: make(chan struct{})}
		c.join(w)
		next := enqueue(t.Context(), c)
		c.exit(pass, end{}) // to w
		cancel()
		if _, err := c.conclude(ctx, w); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
		next.mustEnd(t, nil, 0)
		c.exit(next.pass, end{})
		mustHave(t, c, 0, 0)
	})
}

// TestConcurrencySlotAtTheLastMoment: a slot that comes with the queue timeout is
// taken, not thrown away.
func TestConcurrencySlotAtTheLastMoment(t *testing.T) {
	t.Parallel()
	c := newConcurrency(Concurrency{Max: 1, Queue: 1, QueueFor: time.Second})
	pass := mustEnter(t, c)
	w := &waiter{ready: make(chan struct{})}
	c.join(w)
	c.exit(pass, end{})
	if _, err := c.conclude(t.Context(), w); err != nil {
		t.Errorf("refused: %v", refusal(err).Reason)
	}
	mustHave(t, c, 1, 0)
}

func TestConcurrencyFaultsAndText(t *testing.T) {
	t.Parallel()
	for want, config := range map[string]Concurrency{
		"Max Queue QueueFor": {Max: -1, Queue: -1, QueueFor: -1},
		"QueueFor Priority":  {QueueFor: 1, Priority: true},
		"":                   {Max: math.MaxInt, Queue: math.MaxInt, QueueFor: math.MaxInt64},
	} {
		if got := strings.Join(faultsOf(t, config), " "); got != want {
			t.Errorf("faults %q, want %q", got, want)
		}
	}
	for want, config := range map[string]Concurrency{
		"Concurrency(10)": {},
		"Concurrency(64, queue 16 for 20ms, by priority)": {Max: 64, Queue: 16, QueueFor: 20 * time.Millisecond, Priority: true},
	} {
		if got := config.String(); got != want {
			t.Errorf("text %q, want %q", got, want)
		}
		if got := Must(New("test", config)).Traits().Blocks; got != (config.Queue > 0) {
			t.Errorf("%v: blocks %v", config, got)
		}
	}
	huge := newConcurrency(Concurrency{Max: math.MaxInt, Queue: math.MaxInt})
	admitted(t, huge, succeeded, 3)
	if got := huge.state(0).Limit; got != math.MaxInt32 {
		t.Errorf("limit %d", got)
	}
	mustHave(t, huge, 0, 0)
}

// TestConcurrencyAgainstModel compares random sequences with two sorted lists.
func TestConcurrencyAgainstModel(t *testing.T) {
	t.Parallel()
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) { compareConcurrency(t, seed) })
	}
}

func compareConcurrency(t *testing.T, seed uint64) {
	type call struct {
		*queued
		id, priority int
		cancel       context.CancelFunc
	}
	random := rand.New(rand.NewPCG(seed, 8))
	config := Concurrency{Max: 1 + random.IntN(3), Queue: random.IntN(5)}
	config.Priority = config.Queue > 0 && random.IntN(2) == 0
	c := newConcurrency(config)
	var running, waiting []call
	settle := func(step int, who call, want error) {
		t.Helper()
		select {
		case <-who.done:
		default:
			t.Fatalf("seed %d step %d: call %d still waits", seed, step, who.id)
		}
		if !errors.Is(who.err, want) {
			t.Fatalf("seed %d step %d: call %d: %v, want %v", seed, step, who.id, who.err, want)
		}
		who.cancel()
	}
	for step := range 200 {
		switch n := random.IntN(10); {
		case n < 5:
			ctx, cancel := context.WithCancel(t.Context())
			who := call{id: step, priority: random.IntN(3), cancel: cancel}
			who.queued = enqueue(WithPriority(ctx, who.priority), c)
			if !config.Priority {
				who.priority = 0
			}
			switch {
			case len(running) < config.Max:
				settle(step, who, nil)
				running = append(running, who)
				continue
			case len(waiting) == config.Queue:
				least := len(waiting) - 1
				if least < 0 || waiting[least].priority >= who.priority {
					settle(step, who, &Rejected{Reason: ConcurrencyLimited})
					continue
				}
				settle(step, waiting[least], &Rejected{Reason: QueueEvicted})
				waiting = waiting[:least]
			}
			waiting = append(waiting, who)
			slices.SortStableFunc(waiting, func(a, b call) int { return b.priority - a.priority })
		case n < 8 && len(running) > 0:
			i := random.IntN(len(running))
			c.exit(running[i].pass, end{})
			running = slices.Delete(running, i, i+1)
			synctest.Wait()
			if len(waiting) > 0 {
				settle(step, waiting[0], nil)
				running = append(running, waiting[0])
				waiting = slices.Delete(waiting, 0, 1)
			}
		case n >= 8 && len(waiting) > 0:
			i := random.IntN(len(waiting))
			waiting[i].cancel()
			synctest.Wait()
			settle(step, waiting[i], context.Canceled)
			waiting = slices.Delete(waiting, i, i+1)
		}
		mustHave(t, c, len(running), len(waiting))
	}
	for _, who := range waiting {
		who.cancel()
	}
}

// TestConcurrencyUnderLoad has exits, arrivals, expiries and evictions meet on
// real threads.
func TestConcurrencyUnderLoad(t *testing.T) {
	t.Parallel()
	c := newConcurrency(Concurrency{Max: 2, Queue: 3, QueueFor: 50 * time.Microsecond, Priority: true})
	var wg sync.WaitGroup
	for worker := range uint64(8) {
		wg.Go(func() {
			random := rand.New(rand.NewPCG(worker, 9))
			for range 2000 {
				ctx, cancel := context.WithCancel(WithPriority(t.Context(), random.IntN(3)))
				timer := time.AfterFunc(time.Duration(random.IntN(100))*time.Microsecond, cancel)
				if pass, err := c.enter(ctx, monotonic()); err == nil {
					for range random.IntN(500) {
						_ = c.state(0)
					}
					c.exit(pass, end{})
				}
				timer.Stop()
				cancel()
			}
		})
	}
	wg.Wait()
	mustHave(t, c, 0, 0)
}

func TestConcurrencyAllocatesNothing(t *testing.T) {
	noAllocs(t, newConcurrency(Concurrency{}))
	noAllocs(t, newConcurrency(Concurrency{Queue: 10, QueueFor: time.Second, Priority: true}))
}

func BenchmarkConcurrency(b *testing.B) { benchmarkAdmitter(b, newConcurrency(Concurrency{Queue: 10})) }
