package main

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
	"time"

	"github.com/materpc/materpc"
)

// tally counts calls. Safe for concurrent use.
type tally struct {
	stateOf func(id string) state
	began   time.Time

	mu       sync.Mutex
	counts   counts
	latency  histogram // of unary calls that worked
	byServer map[string]int
	faults   map[string]int // failed calls by what they have in common
	first    []string       // the first of them, in full
}

// counts are the words of the summary that calls decide.
type counts struct{ calls, streams, failed, lost, repicked int }

// keptFaults is how many failed calls are told in full.
const keptFaults = 5

func newTally(stateOf func(id string) state) *tally {
	return &tally{stateOf: stateOf, began: time.Now(), byServer: make(map[string]int), faults: make(map[string]int)}
}

// ended counts a call that server answered, or that err ended.
func (t *tally) ended(r *record, server string, took time.Duration, err error) {
	lost := t.isLost(err)
	t.mu.Lock()
	defer t.mu.Unlock()
	t.counts.calls++
	if r.shape.stream {
		t.counts.streams++
	}
	switch {
	case err == nil:
		t.byServer[server]++
		if r.moved.Load() {
			t.counts.repicked++
		}
		if !r.shape.stream {
			t.latency.add(took)
		}
	case lost:
		t.counts.lost++
	default:
		t.counts.failed++
		t.explain(r.shape.name, err)
	}
}

// isLost tells calls that were inside the killed process from those that
// failed: their connection ended after they may have run, and it led there.
func (t *tally) isLost(err error) bool {
	return materpc.KindOf(err) == materpc.ConnectionLost && t.stateOf(peerOf(err)) == killed
}

// explain keeps what a failed call says about its cause. t.mu is held.
func (t *tally) explain(shape string, err error) {
	what, server := materpc.KindOf(err).String(), "no server"
	if id := peerOf(err); id != "" {
		server = fmt.Sprintf("%s (%v)", id, t.stateOf(id))
	}
	t.faults[fmt.Sprintf("%s, %s at %s", what, shape, server)]++
	if len(t.first) < keptFaults {
		t.first = append(t.first, fmt.Sprintf("%s  %s, %s at %s: %v", clock(time.Since(t.began)), what, shape, server, err))
	}
}

// peerOf returns the id of the instance that the last try had gone to.
func peerOf(err error) string {
	var e *materpc.Error
	if errors.As(err, &e) {
		return e.Peer().ID
	}
	return ""
}

// answers returns how many calls a server has answered.
func (t *tally) answers(id string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.byServer[id]
}

// now returns the counts and the answers of each server.
func (t *tally) now() (counts, map[string]int) {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.counts, maps.Clone(t.byServer)
}

// quantile returns the latency that the given share of unary calls stayed under.
func (t *tally) quantile(share float64) time.Duration {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.latency.quantile(share)
}

// explanations tells of the failed calls: how many of which sort, and the first
// of them in full.
func (t *tally) explanations() []string {
	t.mu.Lock()
	defer t.mu.Unlock()
	var list []string
	for _, sort := range slices.Sorted(maps.Keys(t.faults)) {
		list = append(list, fmt.Sprintf("%d x %s", t.faults[sort], sort))
	}
	return append(list, t.first...)
}

// histogram counts durations in buckets that grow by 1 %, from 10 us to over a
// minute, so that its size does not depend on how much it has seen.
type histogram struct {
	buckets [1600]int
	total   int
}

const (
	smallest = 10 * time.Microsecond
	growth   = 1.01
)

func (h *histogram) add(d time.Duration) {
	i := 0
	if d > smallest {
		i = int(math.Log(float64(d)/float64(smallest)) / math.Log(growth))
	}
	h.buckets[min(i, len(h.buckets)-1)]++
	h.total++
}

// quantile returns the upper end of the bucket that holds the call; 0 without
// any.
func (h *histogram) quantile(share float64) time.Duration {
	rank := int(math.Ceil(share * float64(h.total)))
	for i, n := range h.buckets {
		if rank -= n; rank <= 0 && h.total > 0 {
			return time.Duration(float64(smallest) * math.Pow(growth, float64(i+1)))
		}
	}
	return 0
}
