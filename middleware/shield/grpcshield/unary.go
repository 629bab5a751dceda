package grpcshield

import (
	"context"
	"errors"
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
	return c.repeat(ctx, p, u)
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
	client  *client
	plan    plan
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
	err     error
	options []grpc.CallOption
}

// repeat is a call under a shield that may repeat it.
func (c *client) repeat(ctx context.Context, p plan, u unary) error {
	return (&attempts{unary: u, client: c, plan: p, options: sift(u.options), apart: p.overlaps}).run(ctx)
}

func (c *attempts) run(ctx context.Context) error {
	if c.apart {
		if _, err := another(c.reply); err != nil {
			c.options.finished(err)
			return err
		}
	}
	defer c.end() // also of a panic
	result, err := shield.Call(ctx, c.plan.Shield, c, func(ctx context.Context, c *attempts) (any, error) { return c.attempt(ctx) })
	c.end()
	selected := c.selected(result, err)
	if selected != nil {
		c.options.hand(&selected.collected)
	}
	_, failed := result.(*attempt)
	switch {
	case err != nil:
		err = surface(ctx, err)
	case failed:
		err = swallowed(c.plan.Shield)
	case selected == nil || c.apart: // a fallback's, or an attempt's own
		err = transfer(c.reply, result)
	}
	c.options.finished(err)
	return err
}

// attempt runs the call once.
func (c *attempts) attempt(ctx context.Context) (any, error) {
	if c.plan.repeats {
		if err := c.client.owner(ctx, c.cc, c.method, c.plan.Shield); err != nil {
			return nil, err
		}
	}
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
	a.err = err
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

// selected returns the attempt that the shield's end of the call comes from, nil
// if that is a layer's, or the caller's: one that cancels between attempts.
func (c *attempts) selected(result any, err error) *attempt {
	if a, ok := result.(*attempt); ok {
		if errors.Is(err, a.err) {
			return a
		}
		return nil
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
