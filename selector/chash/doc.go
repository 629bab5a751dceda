// Package chash sends calls with the same key to the same node: consistent
// hashing, for callees with caches or locks by key.
//
//	selector := chash.New(chash.Key(tenant))          // a Kratos selector; tenant is a func(context.Context) string
//	picker := chash.Strategy().Build(nodes, previous) // in a balancer; Request.Hash holds selector.HashKey(key)
//
// All processes agree on a key's node, in any release and on any architecture,
// since hashes are fixed and a node's place depends on its address alone. A
// node that is not allowed hands its keys to the next on the ring; a change of
// the set moves the keys of the changed node only. Defaults: 100 points on the
// ring for a node of weight 100, one replica. A call without a key goes to a
// random node, by weight.
//
// It balances keys, not calls: one hot key stays on one node (see Replicas). It
// ignores latency and load.
package chash
