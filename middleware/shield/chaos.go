package shield

import (
	"context"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"
)

// Chaos makes a share of calls slow or has them fail before the work, to see
// what the layers around it do. The zero value does nothing.
type Chaos struct {
	// Rate is the share of calls that are hit, 0 to 1.
	Rate float64
	// Latency is waited before the work.
	Latency time.Duration
	// Fault is returned instead of running the work, after Latency. nil lets the
	// work run.
	Fault error
	// Seed makes the choice the same in each run of a program that calls one
	// after another. 0 means a random one.
	Seed uint64
}

func (l Chaos) plan(p *planner) {
	faults := len(p.faults)
	if !(l.Rate >= 0 && l.Rate <= 1) {
		p.fault("Chaos", "Rate", l.Rate, "give 0 to 1")
	}
	if l.Latency < 0 {
		p.fault("Chaos", "Latency", l.Latency, "give 0 or more")
	}
	if len(p.faults) > faults {
		return
	}
	text := fmt.Sprintf("Chaos(%v", l.Rate)
	if l.Latency > 0 {
		text += ", " + l.Latency.String()
	}
	if l.Fault != nil {
		text += ", " + l.Fault.Error()
	}
	p.admit(l, "chaos", text+")", l.Latency > 0, func() admitter {
		c := &chaos{Chaos: l}
		c.seed.Store(l.Seed)
		if l.Seed == 0 {
			c.seed.Store(rand.Uint64())
		}
		return c
	})
}

type chaos struct {
	Chaos
	seed atomic.Uint64
}

// enter draws from a sequence that is the same for the same seed: SplitMix64,
// whose state is one atomic (Steele, Lea, Flood 2014, DOI 10.1145/2660193.2660195).
func (c *chaos) enter(ctx context.Context, _ int64) (ticket, error) {
	if c.Rate == 0 || c.draw() >= c.Rate {
		return ticket{}, nil
	}
	if c.Latency > 0 {
		if err := sleep(ctx, c.Latency); err != nil {
			return ticket{}, err
		}
	}
	return ticket{}, c.Fault
}

// draw returns a number in [0, 1).
func (c *chaos) draw() float64 {
	z := c.seed.Add(0x9e3779b97f4a7c15)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return float64((z^z>>31)>>11) / (1 << 53)
}

func (c *chaos) exit(ticket, end)       {}
func (c *chaos) state(int64) LayerState { return LayerState{} }
func (c *chaos) reset()                 {}
