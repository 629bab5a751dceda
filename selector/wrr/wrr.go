package wrr

import (
	"math/rand/v2"
	"slices"
	"sync/atomic"

	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/internal/draw"
)

// Name is the name of the strategy.
const Name = "wrr"

// Option changes the strategy. There is none yet; the parameter is Kratos's.
type Option func(*options)

type options struct{}

// New makes a Kratos selector.
func New(opts ...Option) kselector.Selector { return NewBuilder(opts...).Build() }

// NewBuilder makes a builder of Kratos selectors, for SetGlobalSelector.
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

func (strategy) Build(nodes []*selector.Node, previous selector.Picker) selector.Picker {
	old, _ := previous.(*picker)
	p := &picker{}
	if old == nil {
		p.seed = rand.Uint64()
	} else {
		p.seed = old.seed
	}
	p.schedule = newSchedule(nodes, p.seed)
	p.sweep = draw.NewSweep(slices.DeleteFunc(slices.Clone(nodes), func(n *selector.Node) bool { return n.Weight() == 0 }))
	p.turn = p.schedule.resume(old)
	return p
}

// picker walks over the schedule. Nothing of nodes that left stays in it.
type picker struct {
	schedule
	seed  uint64
	turn  *atomic.Uint64 // number of the next slot to look at, counted over all rounds
	sweep draw.Sweep
}

// patience bounds how many slots a pick may pass over before it takes any
// allowed node: where few are allowed there is no turn to keep.
const patience = 64

// Pick implements selector.Picker.
func (p *picker) Pick(r *selector.Request) *selector.Node {
	if len(p.slots) == 0 {
		return nil
	}
	for range min(2*len(p.slots), patience) {
		// Passing over a slot uses its turn up, so the next node does not inherit
		// the share of one that is not allowed.
		if n := p.at(p.turn.Add(1) - 1); n != nil && r.Allows(n) {
			return n
		}
	}
	if i := p.sweep.Find(r); i >= 0 {
		return p.sweep.Nodes()[i]
	}
	return nil
}
