package shield

import (
	"context"
	"fmt"
)

// Strategy is a layer of one's own. It runs the work, and all layers under it,
// with next: not at all, once, or, one after another, as often as its traits
// say. It is shared by all calls.
type Strategy interface {
	Handle(ctx context.Context, next func(context.Context) error) error
	Traits() Traits
	fmt.Stringer
}

// Use makes a layer of a strategy. A call through it costs an allocation.
func Use(strategy Strategy) Layer { return custom{strategy} }

type custom struct{ strategy Strategy }

func (l custom) plan(p *planner) {
	if l.strategy == nil {
		p.fault("Use", "strategy", nil, "give a strategy")
		return
	}
	p.add(node{kind: strategyNode, name: "custom", text: l.strategy.String(), config: l, strategy: l.strategy, traits: l.strategy.Traits()})
}

// consult runs what is under a strategy when the strategy says so.
func consult[S, R any](ctx context.Context, n *node, nodes []node, replies bool, state S, fn func(context.Context, S) (R, error)) (R, *Wished, error) {
	var result R
	var wished *Wished
	err := n.strategy.Handle(ctx, func(ctx context.Context) error {
		var err error
		result, wished, err = run(ctx, nodes, replies, state, fn)
		return err
	})
	if own, err := separate(err); own != nil {
		return result, own, err
	}
	return result, wished, err
}
