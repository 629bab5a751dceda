package shield

import (
	"context"
	"errors"
	"fmt"
	"math"
	"strings"
)

// Shield is an immutable list of layers around work, the first outermost. The
// state of its layers is its own: build a shield once and share it, or use it as
// a layer of others, which then share its state. Safe for concurrent use.
type Shield struct {
	name    string
	nodes   []node
	replies bool // a clause looks at replies
}

// New compiles layers. All faults come in one error, each a [*ConfigError] with
// the layer's index. A shield without layers runs its work and nothing else.
func New(name string, layers ...Layer) (*Shield, error) {
	nodes, err := plan(name, layers, nil)
	if err != nil {
		return nil, err
	}
	return assemble(name, nodes), nil
}

// Must is New for shields that are part of the program: it panics on a fault.
func Must(s *Shield, err error) *Shield {
	if err != nil {
		panic(err) //nolint:forbidigo // what Must is for
	}
	return s
}

func assemble(name string, nodes []node) *Shield {
	s := &Shield{name: name, nodes: nodes}
	for i := range nodes {
		s.replies = s.replies || nodes[i].clause != nil && nodes[i].clause.reply
	}
	return s
}

func (s *Shield) plan(p *planner) {
	p.nodes = append(p.nodes, s.nodes...)
}

// Do runs fn under the shield. fn may run several times, one after another or,
// under a Hedge, at once; each time with the ctx of that attempt. A ctx that has
// ended before the start is returned as its error, and fn does not run.
func (s *Shield) Do(ctx context.Context, fn func(context.Context) error) error {
	_, err := Call(ctx, s, fn, func(ctx context.Context, fn func(context.Context) error) (struct{}, error) {
		return struct{}{}, fn(ctx)
	})
	return err
}

// Call is [Shield.Do] for work with a result. state is handed to fn, so that fn
// can be a plain function and the call needs no closure.
func Call[S, R any](ctx context.Context, s *Shield, state S, fn func(context.Context, S) (R, error)) (R, error) {
	if err := ctx.Err(); err != nil {
		var none R
		return none, err
	}
	result, _, err := run(ctx, s.nodes, s.replies, state, fn)
	return result, err
}

// Name returns the name given to New.
func (s *Shield) Name() string { return s.name }

// String shows the layers in the order in which a call meets them.
func (s *Shield) String() string {
	var b strings.Builder
	b.WriteString(s.name + ": ")
	if len(s.nodes) == 0 {
		b.WriteString("empty")
	}
	var clause *Clause
	for i := range s.nodes {
		n := &s.nodes[i]
		if i > 0 {
			b.WriteString(" > ")
		}
		if n.clause != clause {
			fmt.Fprintf(&b, "[on %s] ", n.clause)
			clause = n.clause
		}
		b.WriteString(n.text)
	}
	return b.String()
}

// Traits returns what the shield may do to its work.
func (s *Shield) Traits() Traits {
	all := Traits{MaxAttempts: 1}
	for i := range s.nodes {
		t := s.nodes[i].traits
		all.MaxAttempts = times(all.MaxAttempts, t.MaxAttempts)
		all.Blocks = all.Blocks || t.Blocks
		all.Concurrent = all.Concurrent || t.Concurrent
		all.ReplacesContext = all.ReplacesContext || t.ReplacesContext
		all.Stateful = all.Stateful || t.Stateful
	}
	return all
}

// times multiplies attempts, of which 0 means without a bound.
func times(a, b int) int {
	if a == 0 || b == 0 || a > math.MaxInt/b {
		return 0
	}
	return a * b
}

// State is a snapshot of a shield. Version changes when a field changes its
// meaning.
type State struct {
	Version int          `json:"version"`
	Shield  string       `json:"shield"`
	Layers  []LayerState `json:"layers"`
}

// Snapshot describes all layers now, each for itself.
func (s *Shield) Snapshot() State {
	state := State{Version: 1, Shield: s.name, Layers: make([]LayerState, 0, len(s.nodes))}
	now := monotonic()
	for i := range s.nodes {
		state.Layers = append(state.Layers, s.nodes[i].state(now))
	}
	return state
}

func (n *node) state(now int64) LayerState {
	var state LayerState
	if n.admitter != nil {
		state = n.admitter.state(now)
	}
	if b := n.budget(); b != nil {
		state.Tokens = b.left()
	}
	state.Kind, state.Layer = n.name, n.text
	return state
}

// isolator is an admitter that can be closed by hand.
type isolator interface{ isolate(reason string) }

// Isolate has every breaker of the shield refuse all calls until Reset; callers
// and [Shield.Snapshot] get the reason as a Note. A shield without a breaker has
// nothing to isolate: that is an error.
func (s *Shield) Isolate(reason string) error {
	found := false
	for i := range s.nodes {
		if b, ok := s.nodes[i].admitter.(isolator); ok {
			b.isolate(reason)
			found = true
		}
	}
	if !found {
		return errors.New("shield " + s.name + ": no Breaker to isolate: add one")
	}
	return nil
}

// Reset has every layer forget what it has learned: breakers close, rates are
// full. Slots in use stay in use.
func (s *Shield) Reset() {
	for i := range s.nodes {
		if a := s.nodes[i].admitter; a != nil {
			a.reset()
		}
	}
}
