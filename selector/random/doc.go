// Package random picks a node at random, with a probability proportional to
// its weight.
//
//	selector := random.New()                           // a Kratos selector
//	picker := random.Strategy().Build(nodes, previous) // in a balancer
//
// It remembers nothing and compares nothing: no latency, no load. (Kratos's
// random ignores weights.)
package random
