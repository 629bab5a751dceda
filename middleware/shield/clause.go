package shield

import (
	"context"
	"errors"
	"strings"
)

// Clause says which outcomes a layer handles: what a Retry repeats, what a
// Breaker counts as failure, what a Fallback replaces. The nil clause, which
// holds until the first [On], handles every error but the caller's own cancel
// and the refusals of layers ([Rejected]).
type Clause struct {
	name  string
	match func(context.Context, Outcome) bool
	reply bool // it looks at replies
}

// Outcome is what the work returned. Reply is set only in shields with a
// clause that looks at replies, see [OnReply].
type Outcome struct {
	Reply any
	Err   error

	wished *Wished // Err was in it
}

// On makes clause the one of all layers after it, until the next On. The layers
// of a shield that is used as a layer keep their own.
func On(clause *Clause) Layer { return ambient{clause} }

type ambient struct{ clause *Clause }

func (a ambient) plan(p *planner) { p.clause = a.clause }

// Match is a clause over errors. The name stands in [Shield.String]. match sees
// the work's own error, never a wrapper; it runs on the caller's goroutine, must
// not block, and may be called concurrently.
func Match(name string, match func(ctx context.Context, err error) bool) *Clause {
	return &Clause{name: name, match: func(ctx context.Context, o Outcome) bool {
		return o.Err != nil && match(ctx, o.Err)
	}}
}

// OnReply is a clause over replies of type T that came without an error. Shields
// with such a clause box each reply once.
func OnReply[T any](name string, match func(ctx context.Context, reply T) bool) *Clause {
	return &Clause{name: name, reply: true, match: func(ctx context.Context, o Outcome) bool {
		reply, ok := o.Reply.(T)
		return ok && o.Err == nil && match(ctx, reply)
	}}
}

// Errors handles errors that match one of targets in the sense of errors.Is.
func Errors(name string, targets ...error) *Clause {
	return Match(name, func(_ context.Context, err error) bool {
		for _, target := range targets {
			if errors.Is(err, target) {
				return true
			}
		}
		return false
	})
}

// Any handles what one of clauses handles; nil among them is the default.
func Any(clauses ...*Clause) *Clause {
	names := make([]string, len(clauses))
	union := &Clause{}
	for i, c := range clauses {
		names[i] = c.String()
		union.reply = union.reply || c != nil && c.reply
	}
	union.name = strings.Join(names, " or ")
	union.match = func(ctx context.Context, o Outcome) bool {
		for _, c := range clauses {
			if c.handles(ctx, o) {
				return true
			}
		}
		return false
	}
	return union
}

// String returns the clause's name.
func (c *Clause) String() string {
	if c == nil {
		return "failures"
	}
	return c.name
}

// handles reports whether the clause is about the outcome.
func (c *Clause) handles(ctx context.Context, o Outcome) bool {
	if c != nil {
		return c.match(ctx, o)
	}
	return o.Err != nil && !errors.Is(o.Err, context.Canceled) && !rejected(o.Err)
}

// rejected reports whether a layer refused.
func rejected(err error) bool {
	var r *Rejected
	return errors.As(err, &r)
}
