package random

import (
	"math/rand/v2"

	kselector "github.com/go-kratos/kratos/v2/selector"

	"github.com/materpc/materpc/selector"
	"github.com/materpc/materpc/selector/internal/draw"
)

// Name is the name of the strategy.
const Name = "random"

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

func (strategy) Build(nodes []*selector.Node, _ selector.Picker) selector.Picker {
	return &picker{deck: draw.New(nodes)}
}

type picker struct{ deck draw.Deck }

// Pick implements selector.Picker.
func (p *picker) Pick(r *selector.Request) *selector.Node {
	if i := p.deck.Draw(r, rand.Uint32()); i >= 0 {
		return p.deck.Nodes()[i]
	}
	return nil
}
