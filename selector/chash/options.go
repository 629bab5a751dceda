package chash

import "context"

// MaxReplicas is the highest number of replicas.
const MaxReplicas = 8

const (
	defaultPoints = 100
	maxPoints     = 10000
)

// Option changes the strategy.
type Option func(*options)

type options struct {
	key      func(context.Context) string
	points   int
	replicas int
}

func newOptions(opts []Option) options {
	o := options{points: defaultPoints, replicas: 1}
	for _, opt := range opts {
		opt(&o)
	}
	return o
}

// VirtualNodes is the number of points on the ring for a node of weight 100,
// default 100; other weights get points in proportion, at least one. More points
// spread keys more evenly (100 points: the share of a node varies by about 10 %)
// and take 9 bytes each. Clients of one service must agree on it. Values
// are clamped to 1 to 10,000.
func VirtualNodes(points int) Option {
	return func(o *options) { o.points = min(max(points, 1), maxPoints) }
}

// Replicas spreads each key over the first n nodes on the ring from its place;
// a call goes to the one of them with the fewest running calls. Default 1;
// values are clamped to 1 to MaxReplicas.
func Replicas(n int) Option {
	return func(o *options) { o.replicas = min(max(n, 1), MaxReplicas) }
}
