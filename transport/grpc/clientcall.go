package grpc

import (
	"context"
	"sync/atomic"
	"time"

	kselector "github.com/go-kratos/kratos/v2/selector"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/selector"
)

// clientCall is the record of one logical outbound call, and its ctx node. It
// is one allocation and never pooled: user code may keep the RPCInfo in it.
type clientCall struct {
	materpc.Recorder
	transport Transport
	client    *client
	attempt   attempt
	tried     selector.Tried
	peer      kselector.Peer

	sealed   atomic.Bool // from here on the ctx carries our header by itself
	outgoing any         // what it then answers for outgoingKey

	method  string
	reply   any
	cc      *stdgrpc.ClientConn
	invoker stdgrpc.UnaryInvoker
	opts    []stdgrpc.CallOption
	finish  []func(error)   // the caller's OnFinish options, run once a call
	traced  context.Context // what the tracers' Start returned

	desc     *stdgrpc.StreamDesc // streams
	streamer stdgrpc.Streamer
	stream   *clientStream
}

type callKey struct{}

// newCall makes the record. It is the one allocation of an outbound call.
func (c *client) newCall(ctx context.Context, method string, shape materpc.Shape, cc *stdgrpc.ClientConn, opts []stdgrpc.CallOption) *clientCall {
	call := &clientCall{client: c, method: method, cc: cc}
	call.Begin(ctx, materpc.Call{
		Side: materpc.ClientSide, Shape: shape, FullMethod: method, From: c.name, To: c.destination,
	}, time.Now())
	call.transport.endpoint = c.target.text
	call.transport.operation = method
	call.transport.nodeFilters = c.filters
	call.takeOptions(opts)
	call.attempt.call = call
	call.attempt.request.Tried = &call.tried
	return call
}

// Value implements context.Context for all the views that the record offers.
func (c *clientCall) Value(key any) any {
	switch key {
	case callKey{}:
		return c
	case attemptKey{}:
		return &c.attempt
	case clientTransportKey:
		return &c.transport
	case selectorPeerKey:
		return &c.peer
	case outgoingKey:
		if c.sealed.Load() {
			return c.outgoing
		}
	}
	return c.Recorder.Value(key)
}

// callFrom finds this client's call in a ctx that middlewares have derived.
func (c *client) callFrom(ctx context.Context) (*clientCall, error) {
	call, ok := ctx.Value(callKey{}).(*clientCall)
	if !ok || call.client != c {
		return nil, materpc.Errorf(materpc.Local,
			"materpc: the ctx that reached the call to %s is not derived from the call's own; a middleware or interceptor replaced it", c.target.text)
	}
	return call, nil
}

// seal returns the ctx that tries are sent with: it carries our header, and
// what middlewares wrote into the request header. All tries of an attempt are
// sent with the same one.
func (c *clientCall) seal(ctx context.Context) context.Context {
	if c.attempt.sealed == nil {
		c.attempt.sealed = c.sealOnce(ctx)
	}
	return c.attempt.sealed
}

// sealOnce lets the record itself answer for the header where nobody between
// it and ctx answers instead, which costs nothing.
func (c *clientCall) sealOnce(ctx context.Context) context.Context {
	switch {
	case c.transport.request.touched():
	case c.sealed.Load():
		if ctx == context.Context(c) {
			return ctx
		}
	case ctx == context.Context(c), ctx.Value(outgoingKey) == nil:
		c.outgoing = c.client.header.prebuilt
		if c.Outer().Value(outgoingKey) != nil {
			c.outgoing = c.client.header.appendTo(c.Outer()).Value(outgoingKey)
		}
		c.sealed.Store(true)
		return ctx
	}
	return c.client.header.appendTo(ctx, c.transport.request.pairs()...)
}

// judge classifies the end of a try. A stream may be judged from two
// goroutines: its reader's, and grpc-go's that sees its ctx end.
func (c *clientCall) judge(ctx context.Context, err error) verdict {
	if c.stream != nil {
		c.stream.end.Lock()
		defer c.stream.end.Unlock()
	}
	return c.attempt.judge(ctx, err)
}

// finished ends the record, once, and tells everybody.
func (c *clientCall) finished(err error) {
	if !c.Finish(err) {
		return
	}
	c.runOnFinish(err)
	c.client.observers.finish(c.traced, &c.RPCInfo, err)
	c.client.leave()
}

func (c *clientCall) runOnFinish(err error) {
	for _, fn := range c.finish {
		guard(func() { fn(err) })
	}
}

// clientHeader is materpc's request header, one constant string for all calls
// of a connection object (an own one a call would be eight allocations).
type clientHeader struct {
	text     string
	prebuilt any
}

func newClientHeader(caller, nonce string) clientHeader {
	text := wire.Header{Caller: caller, Nonce: nonce}.String()
	return clientHeader{text: text, prebuilt: outgoingValue(metadata.MD{wire.HeaderKey: {text}})}
}

// appendTo adds pairs and the header, last: on both sides the last value counts.
func (h clientHeader) appendTo(ctx context.Context, pairs ...string) context.Context {
	return metadata.AppendToOutgoingContext(ctx, append(pairs, wire.HeaderKey, h.text)...)
}

// takeOptions splits the caller's OnFinish options, which grpc-go would run
// once a try, from the others. Calls without any keep their slice.
func (c *clientCall) takeOptions(opts []stdgrpc.CallOption) {
	kept := opts
	for i, opt := range opts {
		on, ok := opt.(stdgrpc.OnFinishCallOption)
		if ok {
			if len(kept) == len(opts) {
				kept = append(make([]stdgrpc.CallOption, 0, len(opts)), opts[:i]...)
			}
			c.finish = append(c.finish, on.OnFinish)
		} else if len(kept) < len(opts) {
			kept = append(kept, opt)
		}
	}
	c.opts = kept
}
