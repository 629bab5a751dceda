package p2c

import (
	"math/rand/v2"

	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/internal/draw"
)

// Name is the name of the strategy.
const Name = "p2c"

// Option changes the strategy. There is none yet; the parameter is Kratos's.
type Option func(*options)

type options struct{}

// New makes a Kratos selector.
func New(opts ...Option) kselector.Selector { return NewBuilder(opts...).Build() }

// NewBuilder makes a builder of Kratos selectors, for SetGlobalSelector. To
// give options of the adapter, use selector.NewBuilder(p2c.Strategy(), ...).
func NewBuilder(opts ...Option) kselector.Builder { return selector.NewBuilder(Strategy(opts...)) }

// Strategy returns the strategy for a balancer.
func Strategy(opts ...Option) selector.Strategy {
	var o options
	for _, opt := range opts {
		opt(&o)
	}
	return strategy{}
}

type strategy struct{}

func (strategy) Name() string { return Name }

// Build needs nothing of the previous picker: what is learned lives in the nodes.
func (strategy) Build(nodes []*selector.Node, _ selector.Picker) selector.Picker {
	p := &picker{deck: draw.New(nodes)}
	total := 0.0
	for _, n := range p.deck.Nodes() {
		total += float64(n.Weight())
	}
	if count := len(p.deck.Nodes()); count > 0 {
		p.meanWeight = total / float64(count)
	}
	return p
}

type picker struct {
	deck       draw.Deck
	meanWeight float64
}

// Pick implements selector.Picker.
func (p *picker) Pick(r *selector.Request) *selector.Node {
	random := rand.Uint64()
	first := p.deck.Draw(r, uint32(random>>32))
	if first < 0 {
		return nil
	}
	nodes := p.deck.Nodes()
	second := p.deck.Other(r, first, uint32(random))
	if second < 0 {
		return nodes[first]
	}
	mine, theirs := nodes[first].Stats(), nodes[second].Stats()
	if p.challenged(r.Now, &mine, &theirs) {
		return nodes[second]
	}
	return nodes[first]
}

// challenged decides whether the second node takes the call from the first.
func (p *picker) challenged(now int64, first, second *selector.Stats) bool {
	random := rand.Uint64()
	if now-first.LastPick > staleAfter && random%probeOneIn == 0 {
		return false
	}
	mine, theirs := p.price(now, first, second), p.price(now, second, first)
	a, b := mine.above*theirs.below, theirs.above*mine.below
	if first.Weight == second.Weight && b > a*near && a > b*near {
		return second.LastPick < first.LastPick
	}
	if b >= a {
		return false
	}
	// Taken with probability 1 - (b/a)^2: nearly always from a node that is four
	// times as dear, one time in five from one that is a tenth dearer.
	const bits = 53
	u := float64(random>>(64-bits)) / (1 << bits)
	return u*a*a < a*a-b*b
}
