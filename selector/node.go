package selector

import (
	"sync/atomic"
	"time"

	"github.com/materpc/materpc/internal/ewma"
)

// Load is what a call puts on a node while it runs.
type Load uint8

const (
	// Unary is a call that ends with its one reply; its duration is a latency.
	Unary Load = iota
	// Stream is an open stream. It is counted apart from unary load, since a
	// stream that the caller forgot stays open for ever, and its duration is no
	// latency.
	Stream
)

// WarmResults is the number of results after which a node counts as warm.
const WarmResults = ewma.Warm

// Node is one instance in a client's table: identity, weight, statistics. All
// methods are safe for concurrent use, none blocks or allocates. Times are
// monotonic nanoseconds of one clock of the caller's choice. A node that
// leaves the table and returns must be a new Node, so that late results of the
// old one reach nobody.
type Node struct {
	weight   atomic.Int64
	ready    atomic.Bool
	unary    atomic.Int64
	streams  atomic.Int64
	lastPick atomic.Int64
	stat     ewma.Stat
	instance atomic.Pointer[Instance]
	owner    atomic.Pointer[any]
	// Nodes are written by every call: without the padding two of them share a
	// cache line.
	_ [48]byte
}

// NewNode makes a node without statistics. It is not ready.
func NewNode(in *Instance, now int64) *Node {
	n := &Node{}
	n.lastPick.Store(now)
	n.stat.Reset(now)
	n.Update(in)
	return n
}

// Instance returns the description last given to NewNode or Update.
func (n *Node) Instance() *Instance { return n.instance.Load() }

// Update replaces the description of the same instance; the statistics stay. A
// weight below 0 counts as 0. A weight of 0 stops picks at once, any other
// change of weight takes full effect with the next Strategy.Build.
func (n *Node) Update(in *Instance) {
	n.instance.Store(in)
	n.weight.Store(max(in.Weight, 0))
}

// SetReady says whether the node may be picked: connected, not draining,
// breaker closed. It is called by whoever owns the table; a flip needs no new
// picker.
func (n *Node) SetReady(ready bool) { n.ready.Store(ready) }

// Ready reports what SetReady last said, false for a new node.
func (n *Node) Ready() bool { return n.ready.Load() }

// Weight is the configured weight; 0 drains.
func (n *Node) Weight() int64 { return n.weight.Load() }

// SetOwner attaches the owner's own object (a connection, say) to the node.
func (n *Node) SetOwner(owner any) { n.owner.Store(&owner) }

// Owner returns what SetOwner attached, nil when nothing was.
func (n *Node) Owner() any {
	if p := n.owner.Load(); p != nil {
		return *p
	}
	return nil
}

// Begin counts a call that is about to be sent. Each Begin needs exactly one
// End.
func (n *Node) Begin(now int64, load Load) {
	n.lastPick.Store(now)
	n.counter(load).Add(1)
}

// End counts the call out and learns from its outcome. began is the now of
// Begin. A Neutral outcome changes no statistics, a Stream changes the success
// ratio only.
func (n *Node) End(now, began int64, load Load, outcome Outcome) {
	n.counter(load).Add(-1)
	if outcome == Neutral {
		return
	}
	latency := int64(-1)
	if load == Unary {
		latency = max(now-began, 0)
	}
	n.stat.Observe(now, latency, outcome == Success)
}

// InFlight is the number of unary calls between Begin and End.
func (n *Node) InFlight() int64 { return n.unary.Load() }

// OpenStreams is the number of streams between Begin and End.
func (n *Node) OpenStreams() int64 { return n.streams.Load() }

func (n *Node) counter(load Load) *atomic.Int64 {
	if load == Stream {
		return &n.streams
	}
	return &n.unary
}

// Stats is one reading of a node's figures, for strategies and for display.
// Latency, Success, Results and Good belong together; the counters are read one
// after the other.
type Stats struct {
	Weight      int64
	InFlight    int64
	OpenStreams int64
	LastPick    int64   // the now of the last Begin, of NewNode before that
	Latency     float64 // average in nanoseconds, 0 while unknown
	Success     float64 // average success ratio, 0 to 1; 1 before any result
	Results     int     // results seen, at most WarmResults
	Good        bool    // the last result was a success; true before any result
}

// Stats reads the figures of the node.
func (n *Node) Stats() Stats {
	v := n.stat.Load()
	return Stats{
		Weight: n.weight.Load(), InFlight: n.unary.Load(), OpenStreams: n.streams.Load(), LastPick: n.lastPick.Load(),
		Latency: v.Latency, Success: v.Success, Results: v.Results, Good: v.Good,
	}
}

// LatencyFloor is added to every latency before two are compared: below it
// differences are noise of scheduler and network. (Kratos adds 5 ms, which
// hides a handler that became ten times slower.)
const LatencyFloor = time.Millisecond

// Effective is the weight that the statistics leave: weight times success
// ratio, per millisecond of latency. It does not depend on running calls.
func (s Stats) Effective() float64 {
	return float64(s.Weight) * s.Success * float64(time.Millisecond) / (s.Latency + float64(LatencyFloor))
}
