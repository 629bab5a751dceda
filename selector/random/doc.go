// Package random picks a node at random, with a probability proportional to
// its weight.
//
//	selector := random.New()                           // a Kratos selector
//	picker := random.Strategy().Build(nodes, previous) // in a balancer
//
// Defaults: there are no options. A node without a weight of its own has 100; one
// of weight 0 is not picked.
//
// It remembers nothing and compares nothing: no latency, no load. (Kratos's
// random ignores weights.)
package random
