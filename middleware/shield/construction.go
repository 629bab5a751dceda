package shield

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
)

// construction is a build that is under way.
type construction[K comparable] struct {
	done   chan struct{}
	shield *Shield // both set before done is closed
	err    error
	retry  bool // it failed because its caller has gone: another may try

	// waits are the builds that this one waits for.
	waits []*construction[K]
}

// builderKey finds, in the ctx of a build, which one it is.
type builderKey[K comparable] struct{ partitions *Partitions[K] }

// cold builds the shield of key, or waits for who does.
func (p *Partitions[K]) cold(ctx context.Context, key K) (*Shield, error) {
	if key != key { // NaN: the table could never find it again
		return nil, fmt.Errorf("shield: the key %v does not equal itself: give another", key)
	}
	outer, _ := ctx.Value(builderKey[K]{p}).(*construction[K])
	for {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		s, c, first, err := p.join(key, outer)
		if s != nil || err != nil {
			return s, err
		}
		if first {
			p.construct(ctx, key, c)
		}
		select {
		case <-c.done:
		case <-ctx.Done():
		}
		p.leave(c, outer)
		select {
		case <-c.done:
			if !c.retry || first {
				return c.shield, c.err
			}
		default:
			return nil, ctx.Err()
		}
	}
}

// join returns the shield of key, or the build to wait for and whether it is the
// caller's to do.
func (p *Partitions[K]) join(key K, outer *construction[K]) (s *Shield, c *construction[K], first bool, err error) {
	p.mu.Lock()
	var out []eviction[K]
	defer func() { p.mu.Unlock(); p.tell(out) }()
	if p.closed {
		return nil, nil, false, ErrPartitionsClosed
	}
	out = p.expire(monotonic())
	if found := p.table[key]; found != nil { // built meanwhile
		found.touched.Store(monotonic())
		p.use(found)
		return found.shield, nil, false, nil
	}
	c = p.pending[key]
	if c == nil {
		c, first = &construction[K]{done: make(chan struct{})}, true
		p.pending[key] = c
	}
	if outer != nil {
		if c.reaches(outer) {
			return nil, nil, false, fmt.Errorf("shield: building %v waits for itself: do not Get it from its own Build", key)
		}
		outer.waits = append(outer.waits, c)
	}
	return nil, c, first, nil
}

// reaches reports whether c is other or waits for it. There are no rings, since
// none is let in.
func (c *construction[K]) reaches(other *construction[K]) bool {
	if c == other {
		return true
	}
	for _, next := range c.waits {
		if next.reaches(other) {
			return true
		}
	}
	return false
}

// leave ends outer's wait for c.
func (p *Partitions[K]) leave(c, outer *construction[K]) {
	if outer == nil {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, next := range outer.waits {
		if next == c {
			outer.waits = append(outer.waits[:i], outer.waits[i+1:]...)
			return
		}
	}
}

var errBuildEnded = errors.New("shield: the build ended its goroutine")

// construct builds, and settles c however the build ends.
func (p *Partitions[K]) construct(ctx context.Context, key K, c *construction[K]) {
	var s *Shield
	err := errBuildEnded
	defer func() {
		if thrown := recover(); thrown != nil {
			s, err = nil, fmt.Errorf("shield: building %v panicked: %v", key, thrown)
		}
		c.retry = err != nil && ctx.Err() != nil
		p.settle(key, c, s, err)
	}()
	s, err = p.config.Build(context.WithValue(ctx, builderKey[K]{p}, c), key)
	if s == nil && err == nil {
		err = fmt.Errorf("shield: Build returned no shield for %v: return one, or an error", key)
	}
}

// settle ends a build: its shield takes a place, if need be that of another.
func (p *Partitions[K]) settle(key K, c *construction[K], s *Shield, err error) {
	p.mu.Lock()
	var out []eviction[K]
	delete(p.pending, key)
	switch {
	case err != nil:
		s = nil
	case p.closed:
		p.created.Add(1)
		p.evictions[EvictedClosed].Add(1)
		out = append(out, eviction[K]{key, s, EvictedClosed})
		s, err = nil, ErrPartitionsClosed
	default:
		p.created.Add(1)
		for len(p.table) >= p.config.Max && p.oldest() != nil {
			out = append(out, p.remove(EvictedFull))
		}
		p.insert(key, s)
	}
	c.shield, c.err = s, err
	close(c.done)
	p.mu.Unlock()
	p.tell(out)
}

// insert adds the most recent. The caller holds mu.
func (p *Partitions[K]) insert(key K, s *Shield) {
	added := &partition[K]{key: key, shield: s}
	added.place = p.uses.Add(1)
	added.used.Store(added.place)
	added.touched.Store(monotonic())
	p.table[key] = added
	heap.Push(&p.order, added)
}
