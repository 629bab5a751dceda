package shield

import (
	"context"
	"fmt"
)

// Pass is an admitted call, see [Shield.Enter]. It is a value on the caller's
// stack; do not copy it.
type Pass struct{ way walk }

// Enter is the admitting half of a shield, for work that is not a function: a
// handler's whole life, a stream. Each Enter without error needs one Exit. A
// shield that may repeat its work, replace its result or consult a strategy
// cannot do this: Enter then returns an error and admits nothing.
func (s *Shield) Enter(ctx context.Context) (Pass, error) {
	p := Pass{walk{nodes: s.nodes, ctx: ctx}}
	if err := s.admitsOnly(); err != nil {
		return p, err
	}
	if err := ctx.Err(); err != nil {
		return p, err
	}
	if err := p.way.down(); err != nil {
		o := Outcome{Err: err}
		p.way.up(&o)
		return p, o.Err
	}
	return p, nil
}

// admitsOnly returns why the shield cannot be entered, if so.
func (s *Shield) admitsOnly() error {
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.branches() || n.kind == fallbackNode || n.traits.MaxAttempts != 1 {
			return fmt.Errorf("shield %s: cannot be entered, since %s needs the work as a function: leave it out, or use Do or Call", s.name, n.text)
		}
	}
	return nil
}

// Context returns the ctx for the admitted work.
func (p *Pass) Context() context.Context { return p.way.ctx }

// Exit ends the admitted work with its error, and returns the error as the
// shield sees it: a [Timeout] makes its own. A second Exit does nothing.
func (p *Pass) Exit(err error) error {
	defer p.way.abandon() // a clause may panic
	var o Outcome
	o.wished, o.Err = separate(err)
	p.way.up(&o)
	return o.Err
}
