package shield

import (
	"context"
	"fmt"
)

// Fallback replaces a failure by a reply. Put it first, so that every other
// layer sees the failure.
func Fallback[R any](reply R) Layer {
	return fallbackLayer{text: "Fallback(reply)", reply: func(context.Context, error) (any, error) { return reply, nil }}
}

// FallbackTo replaces a failure by what fn returns, an error included. fn runs
// on the caller's goroutine with the caller's ctx.
func FallbackTo[R any](fn func(ctx context.Context, failure error) (R, error)) Layer {
	if fn == nil {
		return fallbackLayer{}
	}
	return fallbackLayer{text: "Fallback(function)", reply: func(ctx context.Context, failure error) (any, error) {
		return fn(ctx, failure)
	}}
}

type fallbackLayer struct {
	text  string
	reply func(context.Context, error) (any, error)
}

func (l fallbackLayer) plan(p *planner) {
	if l.reply == nil {
		p.fault("FallbackTo", "fn", nil, "give a function")
		return
	}
	p.add(node{kind: fallbackNode, name: "fallback", text: l.text, fallback: &fallbackPlan{l.reply}, traits: Traits{MaxAttempts: 1}})
}

type fallbackPlan struct {
	reply func(context.Context, error) (any, error)
}

// replace puts the fallback's reply in the place of an outcome that the clause
// handles. Refusals of layers are replaced as well, unless a clause of one's own
// says otherwise; the end of the caller's ctx is not.
func (f *fallbackPlan) replace(ctx context.Context, n *node, o *Outcome) bool {
	handled := n.clause.handles(ctx, *o)
	if n.clause == nil && o.Err != nil {
		handled = handled || rejected(o.Err)
	}
	if !handled || ctx.Err() != nil {
		return false
	}
	n.observers.emit(Event{Type: FellBack, Shield: n.shield, Layer: n.text, Err: o.Err})
	o.Reply, o.Err = f.reply(ctx, o.Err)
	o.wished, o.Err = separate(o.Err)
	return true
}

// replacement is a fallback's reply as the call's.
func replacement[R any](o Outcome) (R, error) {
	reply, ok := o.Reply.(R)
	if !ok && o.Reply != nil && o.Err == nil {
		return reply, fmt.Errorf("shield: the fallback gives a %T, the call returns a %T", o.Reply, reply)
	}
	return reply, o.Err
}
