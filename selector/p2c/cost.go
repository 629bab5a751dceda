package p2c

import (
	"time"

	"github.com/materpc/materpc/selector"
)

const (
	// A node that nobody picked for staleAfter may have recovered, and nothing
	// but a call can tell: when it is drawn, one pick in probeOneIn keeps it
	// unconditionally. The pick makes it fresh again, so one call is at risk per
	// second, and in a table so large that every node is stale a bad one gets at
	// most a quarter of its share. Kratos forces after 3 s, and then always.
	staleAfter = int64(time.Second)
	probeOneIn = 4

	// From staleAfter to fadedAfter without a pick the statistics fade to those
	// of an unknown node.
	fadedAfter = int64(10 * time.Second)

	// minSuccess keeps a failing node comparable with another failing node.
	minSuccess = 1.0 / 64

	// A node whose last result was good works again, whatever came before: one
	// good probe brings it back, one failure takes that back.
	minRecovering = 1.0 / 2

	// near is the ratio from which on two costs are alike. Of nodes that are
	// alike, and of one weight, the one that waited longer is picked, which
	// spreads picks far more evenly than chance.
	near = 0.9

	// coldTrust is the share of a warm node's standing that a new one starts
	// with (slow start). It grows with results, not with time: a quiet client
	// knows no more about the node after a minute. Between two new nodes it does
	// not count, or after a start whoever answered first would stay ahead.
	coldTrust = 0.5

	// streamLoad bounds what open streams add to the cost: a caller that
	// abandons its streams must not starve the node of unary calls.
	streamLoad = 0.25
)

// price is the cost of a call on a node as a fraction: two prices compare by
// multiplication, which is several times faster than a division.
type price struct{ above, below float64 }

// price is what a call on s would cost, judged against the other node.
func (p *picker) price(now int64, s, other *selector.Stats) price {
	const perResult = 1.0 / selector.WarmResults
	warm := float64(s.Results) * perResult
	trust, success := warm, s.Success
	if idle := now - s.LastPick; idle > staleAfter {
		fresh := max(1-float64(idle-staleAfter)/float64(fadedAfter-staleAfter), 0)
		trust *= fresh
		success = 1 - (1-success)*fresh
	}
	if s.Good {
		success = max(success, minRecovering)
	} else {
		success = max(success, minSuccess)
	}
	latency := blend(s.Latency, other.Latency, trust) + float64(selector.LatencyFloor)
	load := 1.0
	if s.InFlight > 0 {
		load += float64(s.InFlight) * p.scale(s)
	}
	if s.OpenStreams > 0 {
		mine, theirs := float64(s.OpenStreams)*p.scale(s), float64(other.OpenStreams)*p.scale(other)
		load *= 1 + streamLoad*mine/(mine+theirs+1)
	}
	standing := 1.0
	if other.Results == selector.WarmResults {
		standing = coldTrust + (1-coldTrust)*warm
	}
	return price{above: load * latency, below: success * success * standing}
}

// scale makes the load of a node comparable with that of a node of mean
// weight. A weight may have fallen to 0 since the node was found allowed.
func (p *picker) scale(s *selector.Stats) float64 { return p.meanWeight / float64(max(s.Weight, 1)) }

// blend trusts own as far as trust goes and takes the rest from the other. A
// latency of 0 is unknown.
func blend(own, other, trust float64) float64 {
	switch {
	case own == 0:
		return other
	case other == 0:
		return own
	default:
		return own*trust + other*(1-trust)
	}
}
