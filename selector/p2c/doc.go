// Package p2c picks the better of two random nodes by load, latency and
// success. It is the default strategy.
//
//	kselector.SetGlobalSelector(p2c.NewBuilder())   // in a Kratos application
//	picker := p2c.Strategy().Build(nodes, previous) // in a balancer
//
// A first node is drawn by weight, a second one challenges it. The better the
// challenger, the likelier it takes the call; when both are alike the one that
// waited longer gets it, or the first if their weights differ. So equal nodes
// share exactly by weight, a clearly worse node gets next to nothing, and a
// small difference in latency does not starve anyone.
//
// Cost of a node: (1 + calls in flight, relative to weight) x latency /
// success ratio squared. Open streams add at most a quarter. A new node is
// judged by its opponent's latency and, against one that is not new, half
// trusted, both fading over its first 20 results. A node that no one picked for
// a second is tried again whatever its statistics; between 1 s and 10 s without
// a pick they fade.
//
// Defaults: there are no options, the numbers above are fixed. A node without a
// weight of its own has 100; one of weight 0 is not picked.
//
// It does not eject: a node that always fails still gets about one call a
// second.
package p2c
