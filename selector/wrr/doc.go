// Package wrr picks nodes in turn, each as often as its weight says: weighted
// round robin.
//
//	selector := wrr.New()                           // a Kratos selector
//	picker := wrr.Strategy().Build(nodes, previous) // in a balancer
//
// The turn is smooth (a heavy node's picks are spread over the round), exact
// over a full period, starts at a random place in a random order for each
// client, and goes on where it was when the set of nodes or a weight changes. A
// pick takes constant time: one atomic increment and no lock.
//
// Defaults: there are no options. A node without a weight of its own has 100; one
// of weight 0 is not picked.
//
// It compares no latency and no load, and gives a new node its full share at
// once.
package wrr
