package shield

import (
	"context"
	"errors"
)

// run takes work through nodes: down to the work, up again, and down once more
// where a Retry turns. The way is kept on the caller's stack.
// The wish belongs to the error.
func run[S, R any](ctx context.Context, nodes []node, replies bool, state S, fn func(context.Context, S) (R, error)) (R, *Wished, error) {
	if len(nodes) == 0 {
		result, err := fn(ctx, state)
		wished, err := separate(err)
		return result, wished, err
	}
	w := walk{nodes: nodes, ctx: ctx}
	defer w.abandon()
	for {
		var result R
		var wished *Wished
		err := w.down()
		switch {
		case err != nil:
		case w.depth == len(nodes):
			result, err = fn(w.ctx, state)
			wished, err = separate(err)
		case nodes[w.depth].kind == hedgeNode:
			result, wished, err = race(w.ctx, &nodes[w.depth], nodes[w.depth+1:], replies, state, fn)
		default:
			result, wished, err = consult(w.ctx, &nodes[w.depth], nodes[w.depth+1:], replies, state, fn)
		}
		outcome := Outcome{Err: err, wished: wished}
		if replies && err == nil {
			outcome.Reply = result
		}
		switch w.up(&outcome) {
		case turned:
		case replaced:
			result, err = replacement[R](outcome)
			return result, outcome.wished, err
		case arrived:
			return result, outcome.wished, outcome.Err
		}
	}
}

// walk is where a call is on its way.
type walk struct {
	nodes  []node
	depth  int // nodes entered
	ctx    context.Context
	now    int64 // monotonic, of this way down; 0 is unknown
	inline [inlineFrames]frame
	more   []frame
}

// inlineFrames is how many layers need no heap.
const inlineFrames = 6

// frame is what the walk keeps of an entered node.
type frame struct {
	above  context.Context    // the ctx over the node
	cancel context.CancelFunc // timeout
	ticket ticket             // admitter
	retry  retries
}

func (w *walk) frame(i int) *frame {
	if i < inlineFrames {
		return &w.inline[i]
	}
	if w.more == nil {
		w.more = make([]frame, len(w.nodes)-inlineFrames)
	}
	return &w.more[i-inlineFrames]
}

// down enters nodes until the work, a node that branches, or a refusal.
func (w *walk) down() error {
	for ; w.depth < len(w.nodes); w.depth++ {
		n := &w.nodes[w.depth]
		if n.branches() {
			return nil
		}
		f := w.frame(w.depth)
		f.above = w.ctx //nolint:fatcontext // kept for the way back
		switch n.kind {
		case admitNode:
			if err := w.admit(n, f); err != nil {
				return err
			}
		case timeoutNode:
			w.ctx, f.cancel = n.timeout.derive(w.ctx)
		case retryNode:
			n.retry.open(f)
		}
	}
	return nil
}

func (w *walk) admit(n *node, f *frame) error {
	if w.now == 0 {
		w.now = monotonic()
	}
	var err error
	if f.ticket, err = n.admitter.enter(w.ctx, w.now); err != nil {
		return n.refused(err)
	}
	if n.traits.Blocks {
		w.now = 0 // it may have waited
	}
	return nil
}

// refused completes the error of an admitter and tells of it.
func (n *node) refused(err error) error {
	var r *Rejected
	event := Injected
	if errors.As(err, &r) {
		event = Refused
		if r.Shield == "" {
			r.Shield, r.Layer = n.shield, n.text
		}
	}
	n.observers.emit(Event{Type: event, Shield: n.shield, Layer: n.text, Err: err})
	return err
}

// direction is where a way up has led.
type direction uint8

const (
	arrived  direction = iota // out of the shield
	replaced                  // out of it, with a fallback's reply
	turned                    // down again
)

// up leaves nodes, the innermost first. One that runs code of users, which may
// panic, is left after that, so that abandon gives back what it holds.
func (w *walk) up(o *Outcome) direction {
	w.now = 0
	where := arrived
	for w.depth > 0 {
		n, f := &w.nodes[w.depth-1], w.frame(w.depth-1)
		switch n.kind {
		case admitNode:
			kind := n.judge(f.above, *o)
			w.depth--
			w.settle(n, f, kind)
		case timeoutNode:
			w.depth--
			o.Err = n.timeout.arbitrate(w.ctx, n, f, o.Err)
			w.ctx = f.above //nolint:fatcontext // back out
		case retryNode:
			if n.retry.again(n, f, o) {
				return turned
			}
			w.depth--
		case fallbackNode:
			w.depth--
			if n.fallback.replace(f.above, n, o) {
				where = replaced
			}
		}
	}
	return where
}

// settle tells an admitter how the work ended.
func (w *walk) settle(n *node, f *frame, kind endKind) {
	if w.now == 0 {
		w.now = monotonic()
	}
	n.admitter.exit(f.ticket, end{kind: kind, now: w.now})
}

// judge sees an outcome with the eyes of the node's clause. A caller that has
// cancelled says nothing about the work; one whose time is over may well.
func (n *node) judge(ctx context.Context, o Outcome) endKind {
	switch {
	case errors.Is(ctx.Err(), context.Canceled):
		return ignored
	case n.clause.handles(ctx, o):
		return failed
	case o.Err != nil:
		return ignored
	}
	return succeeded
}

// abandon gives back what is still held when the work or a hook panics, or ends
// its goroutine.
func (w *walk) abandon() {
	for w.depth > 0 {
		w.depth--
		n, f := &w.nodes[w.depth], w.frame(w.depth)
		switch n.kind {
		case admitNode:
			n.admitter.exit(f.ticket, end{kind: panicked, now: monotonic()})
		case timeoutNode:
			if f.cancel != nil {
				f.cancel()
			}
		case retryNode:
			n.retry.close(f)
		}
	}
}
