// Package alias draws an index with a probability proportional to its weight
// in constant time (Walker's alias method, in Vose's linear-time form: M. D.
// Vose, "A linear algorithm for generating random numbers with a given
// distribution", 1991).
//
//	t := alias.New([]int64{200, 100})
//	i := t.Draw(rand.Uint32())       // 0 two times in three
//
// A Table is immutable and brings no randomness of its own.
package alias
