package selector

// HashKey hashes the key of a call for Request.Hash. The result is the same
// in every process, release and architecture (FNV-1a, 64 bits, finished with
// Mix), so all clients send a key to the same instance.
func HashKey(key string) uint64 {
	const offset, prime = 14695981039346656037, 1099511628211
	h := uint64(offset)
	for i := range len(key) {
		h = (h ^ uint64(key[i])) * prime
	}
	return Mix(h)
}

// Mix spreads the bits of h over all of the result (the finalizer of
// SplitMix64, Steele, Lea and Flood 2014); FNV alone leaves similar keys close
// together.
func Mix(h uint64) uint64 {
	h ^= h >> 30
	h *= 0xbf58476d1ce4e5b9
	h ^= h >> 27
	h *= 0x94d049bb133111eb
	return h ^ h>>31
}
