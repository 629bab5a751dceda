package chash

import (
	"context"
	"math/rand/v2"

	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/internal/ring"
	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/internal/draw"
)

// Name is the name of the strategy.
const Name = "chash"

// walk bounds the steps along the ring. Nearly all picks need a few; where
// hardly a node is allowed, all nodes are compared instead.
const walk = 64

// New makes a Kratos selector. Without Key no call has a key.
func New(opts ...Option) kselector.Selector { return NewBuilder(opts...).Build() }

// NewBuilder makes a builder of Kratos selectors, for SetGlobalSelector.
func NewBuilder(opts ...Option) kselector.Builder {
	o := newOptions(opts)
	return selector.NewBuilder(&strategy{o}, selector.KeyFunc(o.key))
}

// Strategy returns the strategy for a balancer, which computes Request.Hash
// itself: Key is ignored.
func Strategy(opts ...Option) selector.Strategy { return &strategy{newOptions(opts)} }

type strategy struct{ options options }

func (*strategy) Name() string { return Name }

func (s *strategy) Build(nodes []*selector.Node, previous selector.Picker) selector.Picker {
	p := &picker{deck: draw.New(nodes), replicas: s.options.replicas}
	p.members = members(p.deck.Nodes(), s.options.points)
	old, _ := previous.(*picker)
	p.ring = newRing(p, old)
	return p
}

// picker keeps the ring over the nodes of its deck: member i is node i.
type picker struct {
	deck     draw.Deck
	members  []ring.Member
	ring     *ring.Ring
	replicas int
}

var _ selector.Preferrer = (*picker)(nil)

// Pick implements selector.Picker.
func (p *picker) Pick(r *selector.Request) *selector.Node {
	switch {
	case len(p.members) == 0:
		return nil
	case !r.HasHash:
		return p.nodeAt(p.deck.Draw(r, rand.Uint32()))
	case p.replicas > 1:
		return p.nodeAt(p.leastLoaded(r))
	default:
		return p.nodeAt(p.home(r, true))
	}
}

// Preferred implements selector.Preferrer. With replicas it is the first one.
func (p *picker) Preferred(r *selector.Request) *selector.Node {
	if len(p.members) == 0 || !r.HasHash {
		return nil
	}
	return p.nodeAt(p.home(r, false))
}

func (p *picker) nodeAt(i int) *selector.Node {
	if i < 0 {
		return nil
	}
	return p.deck.Nodes()[i]
}

// home is the first node on the ring that may serve r.
func (p *picker) home(r *selector.Request, ready bool) int {
	// Mixed once more, so that a caller may pass small numbers as hashes.
	position := selector.Mix(r.Hash)
	at := p.ring.Find(position)
	for range min(walk, p.ring.Len()) {
		if i := p.ring.Owner(at); p.may(r, i, ready) {
			return i
		}
		at = p.ring.Next(at)
	}
	return p.rendezvous(r, position, ready)
}

func (p *picker) may(r *selector.Request, i int, ready bool) bool {
	n := p.deck.Nodes()[i]
	return r.Admits(n) && (!ready || n.Ready())
}

// rendezvous compares all nodes for a position (highest random weight, Thaler
// and Ravishankar 1998): like the ring it is stable and the same everywhere.
func (p *picker) rendezvous(r *selector.Request, position uint64, ready bool) int {
	best, score := -1, uint64(0)
	for i := range p.members {
		if !p.may(r, i, ready) {
			continue
		}
		if s := selector.Mix(position ^ p.members[i].Seed); best < 0 || s > score {
			best, score = i, s
		}
	}
	return best
}

// leastLoaded takes the replica with the fewest running calls, a random one of
// several.
func (p *picker) leastLoaded(r *selector.Request) int {
	var found [MaxReplicas]int
	count := 0
	at := p.ring.Find(selector.Mix(r.Hash))
	for range min(walk, p.ring.Len()) {
		if i := p.ring.Owner(at); !contains(found[:count], i) && p.may(r, i, true) {
			found[count] = i
			if count++; count == p.replicas {
				break
			}
		}
		at = p.ring.Next(at)
	}
	if count == 0 {
		return p.rendezvous(r, selector.Mix(r.Hash), true)
	}
	nodes := p.deck.Nodes()
	best, load := -1, int64(0)
	start := rand.IntN(count)
	for k := range count {
		i := found[(start+k)%count]
		if l := nodes[i].InFlight() + nodes[i].OpenStreams(); best < 0 || l < load {
			best, load = i, l
		}
	}
	return best
}

func contains(list []int, i int) bool {
	for _, have := range list {
		if have == i {
			return true
		}
	}
	return false
}

// Key reads the key of a call from its ctx; "" means that the call has none.
// For New and NewBuilder. A panic in it is contained: the call has no key then.
func Key(key func(context.Context) string) Option { return func(o *options) { o.key = key } }
