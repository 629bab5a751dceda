package shield

import "fmt"

// Lint returns what is allowed but rarely meant, each with a remedy. repeatable
// says whether all work of the shield may run twice (proto idempotency_level, or
// a policy's idempotent: true).
func (s *Shield) Lint(repeatable bool) []string {
	var found []string
	warn := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for i := range s.nodes {
		n := &s.nodes[i]
		if n.repeats() && !repeatable {
			warn("%s runs work again that is not marked idempotent: mark it, or leave the layer out", n.text)
		}
		if n.kind == retryNode && n.repeats() && !s.has(i+1, timeoutNode) {
			warn("%s has no Timeout under it, so one hanging attempt uses up all the time: add one after it", n.text)
		}
		for j := range s.nodes[:i] {
			s.lintPair(&s.nodes[j], n, warn)
		}
	}
	return found
}

// lintPair looks at two layers, one somewhere over the other.
func (s *Shield) lintPair(outer, inner *node, warn func(string, ...any)) {
	switch {
	case outer.limits() && inner.kind == retryNode && inner.repeats():
		warn("%s is outside of %s and held while it waits: put it inside, or leave it if the whole is meant", outer.text, inner.text)
	case outer.kind == hedgeNode && inner.name == "breaker":
		warn("%s is outside of %s, so attempts go on that the breaker refuses: put the breaker outside", outer.text, inner.text)
	case outer.kind == hedgeNode && inner.name == "rate":
		warn("%s is outside of %s, so each attempt takes a permit: put the rate outside", outer.text, inner.text)
	case outer.kind == timeoutNode && inner.kind == retryNode && inner.repeats() && inner.retry.Backoff.Delay(Try{Retry: 1}) > outer.timeout.after:
		warn("%s ends before the first wait of %s: give more time, or wait less", outer.text, inner.text)
	}
}

func (n *node) repeats() bool {
	return (n.kind == retryNode || n.kind == hedgeNode || n.kind == strategyNode) && n.traits.MaxAttempts != 1
}

func (n *node) limits() bool { return n.name == "concurrency" || n.name == "rate" }

// has reports whether a node of the kind is at i or further in.
func (s *Shield) has(i int, kind nodeKind) bool {
	for ; i < len(s.nodes); i++ {
		if s.nodes[i].kind == kind {
			return true
		}
	}
	return false
}
