package shield

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Partitions keeps a shield for each key: a tenant, a method, a peer. It holds
// at most Max of them and drops the one that has gone unused for longest. A
// dropped shield goes on for the calls that have it; the next Get of its key
// builds another, which has learned nothing. Safe for concurrent use.
type Partitions[K comparable] struct {
	config PartitionConfig[K]

	mu      sync.RWMutex
	table   map[K]*partition[K]
	order   leastRecent[K]
	pending map[K]*construction[K]
	closed  bool

	uses      atomic.Uint64 // ticks whenever another key than the last is used
	sweep     atomic.Int64  // when to look for idle ones again, monotonic
	created   atomic.Int64
	evictions [EvictedClosed + 1]atomic.Int64
}

// PartitionConfig configures [Partitions].
type PartitionConfig[K comparable] struct {
	// Build makes the shield of a key, with the ctx and on the goroutine of the
	// first Get. It may block, and may Get other keys. A panic is an error.
	Build func(ctx context.Context, key K) (*Shield, error)
	// Max is how many shields are kept. 0 means 1,000.
	Max int
	// Idle is how long one is kept unused. 0 means until its place is needed. No
	// timer runs: a Get or [Partitions.Prune] finds those that are due.
	Idle time.Duration
	// OnEvict, if given, is told of each shield that is dropped, on the goroutine
	// that caused it and outside of locks. A panic is contained.
	OnEvict func(key K, s *Shield, why Eviction)
}

// Eviction says why a shield was dropped.
type Eviction uint8

const (
	// EvictedFull says that another key needed the place.
	EvictedFull Eviction = iota
	// EvictedIdle says that it was unused for as long as Idle.
	EvictedIdle
	// EvictedClosed says that the partitions were closed.
	EvictedClosed
)

func (e Eviction) String() string {
	return [...]string{"full", "idle", "closed", "unknown"}[min(e, EvictedClosed+1)]
}

// ErrPartitionsClosed is the error of Get after Close.
var ErrPartitionsClosed = errors.New("shield: the partitions are closed")

const defaultPartitions = 1000

// NewPartitions returns empty partitions, or all faults of the config.
func NewPartitions[K comparable](config PartitionConfig[K]) (*Partitions[K], error) {
	var faults []error
	if config.Build == nil {
		faults = append(faults, errors.New("shield: PartitionConfig.Build is nil: give a function"))
	}
	if config.Max < 0 {
		faults = append(faults, fmt.Errorf("shield: PartitionConfig.Max is %d: give 0 for %d, or more", config.Max, defaultPartitions))
	}
	if config.Idle < 0 {
		faults = append(faults, fmt.Errorf("shield: PartitionConfig.Idle is %v: give 0 for no bound, or more", config.Idle))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	config.Max = orDefault(config.Max, defaultPartitions)
	return &Partitions[K]{config: config, table: map[K]*partition[K]{}, pending: map[K]*construction[K]{}}, nil
}

// Get returns the shield of key. The first Get of a key builds it, others wait
// for that, each as long as its ctx allows; all get the error of a failed build,
// which leaves nothing behind. Once built, Get neither blocks nor allocates. The
// errors are those of Build, of ctx, [ErrPartitionsClosed], and one for builds
// that would wait for themselves.
func (p *Partitions[K]) Get(ctx context.Context, key K) (*Shield, error) {
	if s := p.warm(key); s != nil {
		return s, nil
	}
	return p.cold(ctx, key)
}

// warm returns the shield of key if there is one that is not due.
func (p *Partitions[K]) warm(key K) *Shield {
	found := p.lookup(key)
	if found == nil {
		return nil
	}
	if p.config.Idle > 0 {
		now := monotonic()
		if p.due(found, now) {
			return nil
		}
		found.touched.Store(now)
		if now >= p.sweep.Load() {
			p.prune(now)
		}
	}
	p.use(found)
	return found.shield
}

func (p *Partitions[K]) lookup(key K) *partition[K] {
	p.mu.RLock()
	defer p.mu.RUnlock() // also when a key of an interface type has no hash
	return p.table[key]
}

// use makes found the most recent. The key that was used last costs no write.
func (p *Partitions[K]) use(found *partition[K]) {
	if found.used.Load() != p.uses.Load() {
		found.used.Store(p.uses.Add(1))
	}
}

func (p *Partitions[K]) due(found *partition[K], now int64) bool {
	return p.config.Idle > 0 && now-found.touched.Load() >= int64(p.config.Idle)
}

// Prune drops what has been idle for too long, and returns how many.
func (p *Partitions[K]) Prune() int { return p.prune(monotonic()) }

func (p *Partitions[K]) prune(now int64) int {
	p.mu.Lock()
	out := p.expire(now)
	p.mu.Unlock()
	p.tell(out)
	return len(out)
}

// expire takes idle ones from the table, and sets when to look again: at the
// tenth of Idle at the most often. The caller holds mu.
func (p *Partitions[K]) expire(now int64) (out []eviction[K]) {
	if p.config.Idle <= 0 {
		return nil
	}
	p.sweep.Store(now + max(int64(p.config.Idle)/10, 1))
	for oldest := p.oldest(); oldest != nil && p.due(oldest, now); oldest = p.oldest() {
		out = append(out, p.remove(EvictedIdle))
	}
	return out
}

// oldest brings the least recently used to the root. Places in the heap are from
// some time ago, and uses since only grow: a root that is up to date is least.
func (p *Partitions[K]) oldest() *partition[K] {
	for len(p.order) > 0 {
		root := p.order[0]
		used := root.used.Load()
		if used == root.place {
			return root
		}
		root.place = used
		heap.Fix(&p.order, 0)
	}
	return nil
}

// remove takes the root out. The caller holds mu and has called oldest.
func (p *Partitions[K]) remove(why Eviction) eviction[K] {
	root, _ := heap.Pop(&p.order).(*partition[K])
	delete(p.table, root.key)
	p.evictions[why].Add(1)
	return eviction[K]{root.key, root.shield, why}
}

// Close drops all shields and has every later Get fail. It waits for no build:
// one still running fails its callers when it ends. A second Close does nothing.
func (p *Partitions[K]) Close() {
	p.mu.Lock()
	p.closed = true
	var out []eviction[K]
	for p.oldest() != nil {
		out = append(out, p.remove(EvictedClosed))
	}
	p.mu.Unlock()
	p.tell(out)
}

// Len is how many shields are kept.
func (p *Partitions[K]) Len() int {
	p.mu.RLock()
	defer p.mu.RUnlock()
	return len(p.table)
}

// Created is how many were ever built.
func (p *Partitions[K]) Created() int64 { return p.created.Load() }

// Evictions is how many were dropped for a reason.
func (p *Partitions[K]) Evictions(why Eviction) int64 {
	if why > EvictedClosed {
		return 0
	}
	return p.evictions[why].Load()
}

func (p *Partitions[K]) tell(out []eviction[K]) {
	if p.config.OnEvict == nil {
		return
	}
	for _, e := range out {
		func() {
			defer func() { _ = recover() }() // a broken hook must not break the call
			p.config.OnEvict(e.key, e.shield, e.why)
		}()
	}
}

// partition is a shield in the table.
type partition[K comparable] struct {
	key     K
	shield  *Shield
	used    atomic.Uint64 // recency
	touched atomic.Int64  // monotonic, only with Idle
	place   uint64        // used, when the heap last looked
}

type eviction[K comparable] struct {
	key    K
	shield *Shield
	why    Eviction
}

// leastRecent is a heap, see [Partitions.oldest].
type leastRecent[K comparable] []*partition[K]

func (h leastRecent[K]) Len() int           { return len(h) }
func (h leastRecent[K]) Less(i, j int) bool { return h[i].place < h[j].place }
func (h leastRecent[K]) Swap(i, j int)      { h[i], h[j] = h[j], h[i] }

// Push implements [heap.Interface].
func (h *leastRecent[K]) Push(x any) {
	added, _ := x.(*partition[K])
	*h = append(*h, added)
}

// Pop implements [heap.Interface].
func (h *leastRecent[K]) Pop() any {
	last := len(*h) - 1
	popped := (*h)[last]
	(*h)[last] = nil
	*h = (*h)[:last]
	return popped
}
