package shield

import (
	"errors"
	"fmt"
	"strings"
)

// planner turns layers into nodes.
type planner struct {
	shield    string
	layer     int     // index of the layer being planned
	clause    *Clause // ambient
	nodes     []node
	observers []func(Event)
	faults    []error
	previous  []node // of the shield that this one replaces, for their state
}

// node is a compiled layer. It is immutable; state is behind pointers.
type node struct {
	kind      nodeKind
	name      string // "retry", for snapshots
	text      string
	shield    string
	config    Layer
	clause    *Clause
	observers observers
	traits    Traits

	admitter admitter
	own      bool // the admitter is this shield's, while it is planned
	timeout  timeoutPlan
	retry    *Retry
	fallback *fallbackPlan
	hedge    *Hedge
	strategy Strategy
}

type nodeKind uint8

const (
	admitNode nodeKind = iota
	timeoutNode
	retryNode
	fallbackNode
	// Branching nodes run what is under them as shields of their own.
	hedgeNode
	strategyNode
)

// budget returns the node's budget, if any.
func (n *node) budget() *Budget {
	switch n.kind {
	case retryNode:
		return n.retry.Budget
	case hedgeNode:
		return n.hedge.Budget
	}
	return nil
}

// branches reports whether the nodes below are run by the node itself.
func (n *node) branches() bool { return n.kind >= hedgeNode }

// fault notes what is wrong with a field of the layer at hand.
func (p *planner) fault(layer, field string, value any, remedy string) {
	p.faults = append(p.faults, &ConfigError{
		Shield: p.shield, Index: p.layer, Layer: layer, Field: field, Value: fmt.Sprint(value), Remedy: remedy,
	})
}

// ConfigError is one fault of a layer. [New] joins all of them; errors.As finds
// the first.
type ConfigError struct {
	Shield string
	Index  int // of the layer in the call of New
	Layer  string
	Field  string // empty when it is about the order of layers
	Value  string
	Remedy string
}

func (e *ConfigError) Error() string {
	var b strings.Builder
	fmt.Fprintf(&b, "layer %d, %s", e.Index, e.Layer)
	if e.Field != "" {
		fmt.Fprintf(&b, ": %s is %s", e.Field, e.Value)
	}
	b.WriteString(": " + e.Remedy)
	return b.String()
}

// admit adds a layer that decides before the work, and blocks if it may wait for
// that. Its state is that of an equal
// layer of the shield before, if there is one.
func (p *planner) admit(config Layer, kind, text string, blocks bool, build func() admitter) {
	n := node{
		kind: admitNode, name: kind, text: text, config: config,
		traits: Traits{MaxAttempts: 1, Blocks: blocks, Stateful: true},
	}
	for i, old := range p.previous {
		if old.admitter != nil && old.shield == p.shield && old.clause == p.clause && equal(old.config, config) {
			n.admitter = old.admitter
			p.previous[i].admitter = nil // taken
			n.own = true                 // it may have other observers now
			p.add(n)
			return
		}
	}
	n.admitter, n.own = build(), true
	p.add(n)
}

// equal compares configs; one with a field that cannot be compared equals none.
func equal(a, b Layer) (same bool) {
	defer func() {
		if recover() != nil {
			same = false
		}
	}()
	return a == b
}

// notifier is an admitter that changes its state by itself. It tells fn one
// change after another, outside its locks.
type notifier interface {
	observe(fn func(from, to string))
}

// observe has all nodes told to the shield's observers.
func (p *planner) observe() {
	for i := range p.nodes {
		n := &p.nodes[i]
		n.observers = append(n.observers[:len(n.observers):len(n.observers)], p.observers...)
		if source, ok := n.admitter.(notifier); ok && n.own {
			list, shield, layer := n.observers, n.shield, n.text
			source.observe(func(from, to string) {
				list.emit(Event{Type: Transition, Shield: shield, Layer: layer, From: from, To: to})
			})
		}
		n.own = false
	}
}

// add appends a node with what all nodes have.
func (p *planner) add(n node) {
	n.shield, n.clause = p.shield, p.clause
	p.nodes = append(p.nodes, n)
}

// plan reports all faults of layers, or returns their nodes.
func plan(name string, layers []Layer, previous []node) ([]node, error) {
	p := &planner{shield: name, previous: previous}
	for i, layer := range layers {
		p.layer = i
		if isNil(layer) {
			p.fault(fmt.Sprintf("%T", layer), "", nil, "it is nil: leave it out, or give a layer")
			continue
		}
		layer.plan(p)
	}
	if len(p.faults) == 0 {
		p.order()
	}
	if len(p.faults) > 0 {
		return nil, fmt.Errorf("shield %q: %w", name, errors.Join(p.faults...))
	}
	p.observe()
	return p.nodes, nil
}

func isNil(layer Layer) bool {
	s, ok := layer.(*Shield)
	return layer == nil || ok && s == nil
}

// order refuses layers that cannot work where they are.
func (p *planner) order() {
	for i := range p.nodes {
		inner := &p.nodes[i]
		for j := range p.nodes[:i] {
			outer := &p.nodes[j]
			switch {
			case inner.admitter != nil && inner.admitter == outer.admitter:
				p.misplaced(i, inner, "shares its state with "+outer.text+" further out, which would count each call twice or wait for itself: give each its own, or leave one out")
			case inner.kind == fallbackNode && outer.reacts() && inner.clause == outer.clause:
				p.misplaced(i, inner, "replaces every failure before "+outer.text+" further out can see one: put the Fallback first, or give it a narrower clause")
			}
		}
	}
}

// reacts reports whether the node does something about failures.
func (n *node) reacts() bool {
	return n.kind == retryNode || n.kind == hedgeNode || n.kind == admitNode && (n.name == "breaker" || n.name == "throttle")
}

func (p *planner) misplaced(i int, n *node, remedy string) {
	p.faults = append(p.faults, &ConfigError{Shield: p.shield, Index: i, Layer: n.text, Remedy: remedy})
}
