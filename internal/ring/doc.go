// Package ring is a consistent-hash ring: every member owns a number of points
// on a circle of 64-bit positions, and a position belongs to the member of the
// next point (D. Karger and others, "Consistent hashing and random trees",
// 1997).
//
//	r := ring.New([]ring.Member{{Seed: hash("a:1"), Points: 100}, {Seed: hash("b:1"), Points: 100}})
//	owner := r.Owner(r.Find(position)) // index of the member
//
// A member's points depend on its seed alone, so a change moves only the keys
// of the members that changed. A Ring is immutable. It hashes no keys, and it
// knows nothing of health: walking on is the caller's.
package ring
