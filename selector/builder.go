package selector

import (
	"context"

	kselector "github.com/go-kratos/kratos/v2/selector"
)

// Option changes the Kratos adapter of NewBuilder. Functions given in options
// run on the call path: they must be fast and safe for concurrent use. A panic
// in one is contained and counts as its neutral answer.
type Option func(*options)

type options struct {
	key     func(context.Context) string
	load    func(context.Context) Load
	outcome func(error) Outcome
}

// KeyFunc reads the key of a call for chash from its ctx; "" means that the
// call has none. Default: no call has a key.
func KeyFunc(key func(context.Context) string) Option { return func(o *options) { o.key = key } }

// LoadFunc tells streams from unary calls, which Kratos does not. Default: all
// calls count as Unary.
func LoadFunc(load func(context.Context) Load) Option { return func(o *options) { o.load = load } }

// OutcomeFunc judges the error of a finished call. Default: OutcomeOf.
func OutcomeFunc(outcome func(error) Outcome) Option { return func(o *options) { o.outcome = outcome } }

// NewBuilder makes a strategy a Kratos selector builder. Its selectors keep a
// node and its statistics across Apply, by address and, when the Kratos node
// has a method ID() string, by id; a node that leaves and returns is new. Note
// that Kratos's own transport/grpc builds a new selector whenever a connection
// becomes ready or is lost, and so forgets all statistics; materpc's does not.
func NewBuilder(s Strategy, opts ...Option) kselector.Builder {
	b := &builder{strategy: s, options: options{outcome: OutcomeOf}}
	for _, opt := range opts {
		opt(&b.options)
	}
	return b
}

type builder struct {
	strategy Strategy
	options  options
}

// Build implements Kratos's selector.Builder.
func (b *builder) Build() kselector.Selector { return newAdapter(b.strategy, &b.options) }

func (o *options) keyOf(ctx context.Context) (key string) {
	if o.key == nil {
		return ""
	}
	defer func() {
		if recover() != nil {
			key = ""
		}
	}()
	return o.key(ctx)
}

func (o *options) loadOf(ctx context.Context) (load Load) {
	if o.load == nil {
		return Unary
	}
	defer func() {
		if recover() != nil {
			load = Unary
		}
	}()
	return o.load(ctx)
}

func (o *options) outcomeOf(err error) (outcome Outcome) {
	defer func() {
		if recover() != nil {
			outcome = Neutral
		}
	}()
	return o.outcome(err)
}
