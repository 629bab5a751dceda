// Package selector chooses one instance for a call. It holds what all
// strategies share: the node with its statistics, the request, the set of
// tried nodes, the contract of a strategy, and the adapter that makes any
// strategy a Kratos selector.
//
// In a Kratos application:
//
//	kselector.SetGlobalSelector(p2c.NewBuilder())
//
// In a balancer of one's own:
//
//	picker := p2c.Strategy().Build(nodes, previous)
//	node := picker.Pick(&selector.Request{Now: now})
//	node.Begin(now, selector.Unary)
//	defer node.End(now, began, selector.Unary, selector.Success)
//
// Defaults: weight 100; weight 0 drains; the caller's cancels change no
// statistics. The strategies are p2c, wrr, random and chash, each in its own
// folder.
//
// It is not a registry, it opens no connection, and it does not eject: who
// owns the table says with SetReady which nodes may be picked.
package selector
