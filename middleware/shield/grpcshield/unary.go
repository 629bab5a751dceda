package grpcshield

import (
	"context"
	"sync"

	"google.golang.org/grpc"

	"github.com/materpc/materpc/middleware/shield"
)

// unary is a call as its interceptor gets it.
type unary struct {
	method     string
	req, reply any
	cc         *grpc.ClientConn
	invoker    grpc.UnaryInvoker
	options    []grpc.CallOption
}

// callUnary is the interceptor.
func (c *client) callUnary(ctx context.Context, method string, req, reply any, cc *grpc.ClientConn, invoker grpc.UnaryInvoker, opts ...grpc.CallOption) error {
	p, err := c.unaryPlan(ctx, method)
	if err != nil {
		return surface(ctx, err)
	}
	if p.Shield == nil {
		return invoker(ctx, method, req, reply, cc, opts...)
	}
	u := unary{method: method, req: req, reply: reply, cc: cc, invoker: invoker, options: opts}
	if !p.repeats && !finishes(opts) {
		return once(ctx, p.Shield, u)
	}
	if p.repeats {
		if err := c.owner(ctx, cc, method, p.Shield); err != nil {
			return err
		}
	}
	return repeat(ctx, p, u)
}

// once is a call under a shield of one attempt: everything flows through it.
func once(ctx context.Context, s *shield.Shield, u unary) error {
	reply, err := shield.Call(ctx, s, u, func(ctx context.Context, u unary) (any, error) {
		err := u.invoker(ctx, u.method, u.req, u.reply, u.cc, u.options...)
		return u.reply, settled(ctx, err)
	})
	switch {
	case err != nil:
		return surface(ctx, err)
	case reply != u.reply: // a fallback's, so no attempt's metadata belongs to it
		wanted := sift(u.options)
		wanted.hand(&collected{})
		return transfer(u.reply, reply)
	}
	return nil
}

// attempts is a call that may run several times.
type attempts struct {
	unary
	options options
	apart   bool // they may overlap
	first   attempt

	mu      sync.Mutex
	begun   int
	beside  []*attempt // each other
	over    bool
	stopped bool // by the server
	running sync.WaitGroup
}

// attempt is one of them. Of a failure it is the result, so that the failure's
// metadata is known from the shield's choice.
type attempt struct {
	collected
	reply   any
	options []grpc.CallOption
}

// repeat is a call under a shield that may repeat it.
func repeat(ctx context.Context, p plan, u unary) error {
	c := &attempts{unary: u, options: sift(u.options), apart: p.overlaps}
	if c.apart {
		if _, err := another(u.reply); err != nil {
			return err
		}
	}
	defer c.end() // also of a panic
	result, err := shield.Call(ctx, p.Shield, c, func(ctx context.Context, c *attempts) (any, error) { return c.attempt(ctx) })
	c.end()
	selected := c.selected(result)
	if selected != nil {
		c.options.hand(&selected.collected)
	}
	switch {
	case err != nil:
		err = surface(ctx, err)
	case selected == nil || c.apart: // a fallback's, or an attempt's own
		err = transfer(u.reply, result)
	}
	c.options.finished(err)
	return err
}

// attempt runs the call once.
func (c *attempts) attempt(ctx context.Context) (any, error) {
	a, err := c.begin(ctx)
	if err != nil {
		return nil, err
	}
	defer c.running.Done()
	if err = settled(ctx, c.invoker(ctx, c.method, c.req, a.reply, c.cc, a.options...)); err == nil {
		return a.reply, nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return a, wished(err, a.trailer, &c.stopped)
}

// begin prepares an attempt, unless the call is over: the request is the
// caller's again then.
func (c *attempts) begin(ctx context.Context) (*attempt, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.over {
		return nil, context.Cause(ctx)
	}
	a := &c.first
	switch {
	case c.apart:
		reply, err := another(c.reply)
		if err != nil {
			return nil, err
		}
		a = &attempt{reply: reply}
		a.options = c.options.of(&a.collected)
		c.beside = append(c.beside, a)
	case c.begun > 0: // after another
		a.collected = collected{}
		forget(c.reply)
	default:
		a.reply = c.reply
		a.options = c.options.of(&a.collected)
	}
	c.begun++
	c.running.Add(1)
	return a, nil
}

// end waits for attempts that were not selected. The shield has cancelled their
// ctx. Nothing touches request, reply or options after it.
func (c *attempts) end() {
	c.mu.Lock()
	c.over = true
	c.mu.Unlock()
	c.running.Wait()
}

// selected returns the attempt that the shield's result comes from, nil if it is
// a layer's.
func (c *attempts) selected(result any) *attempt {
	if a, ok := result.(*attempt); ok {
		return a
	}
	if result == nil || c.begun == 0 {
		return nil
	}
	for _, a := range c.beside {
		if result == a.reply {
			return a
		}
	}
	if result == c.first.reply {
		return &c.first
	}
	return nil
}
