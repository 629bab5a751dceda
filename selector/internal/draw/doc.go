// Package draw finds an allowed node at random: by weight while most nodes are
// allowed, by a sweep over all of them when few are.
//
//	deck := draw.New(nodes)
//	i := deck.Draw(request, rand.Uint32()) // index into deck.Nodes(), -1 for none
//
// It is shared by the strategies, immutable after New, and allocates nothing
// while it draws. It compares no load: that is p2c's.
package draw
