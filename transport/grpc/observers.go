package grpc

import (
	"context"

	"github.com/materpc/materpc"
)

// observers are a client's or server's tracers and event handlers, fixed at
// construction. All of it is code that we do not own.
type observers struct {
	tracers  []materpc.Tracer
	handlers []materpc.EventHandler
}

// watching reports whether anyone listens, so that events nobody reads cost
// nothing.
func (o *observers) watching() bool { return len(o.handlers) > 0 }

// emit hands the event to every handler.
func (o *observers) emit(e materpc.Event) {
	for _, handle := range o.handlers {
		guard(func() { handle(e) })
	}
}

// start runs the tracers' Start in order and returns the ctx for the rest of
// the call.
func (o *observers) start(ctx context.Context, info *materpc.RPCInfo) context.Context {
	for _, tracer := range o.tracers {
		guard(func() {
			if next := tracer.Start(ctx); next != nil {
				ctx = next
			}
		})
	}
	if o.watching() {
		o.emit(materpc.Event{Type: materpc.RPCStart, Info: info})
	}
	return ctx
}

// finish runs after the call's record has its result.
func (o *observers) finish(ctx context.Context, info *materpc.RPCInfo, err error) {
	if o.watching() {
		o.emit(materpc.Event{Type: materpc.RPCFinish, Info: info, Kind: materpc.KindOf(err), Err: err})
	}
	for i := len(o.tracers) - 1; i >= 0; i-- {
		guard(func() { o.tracers[i].Finish(ctx) })
	}
}

// guard runs code that we do not own: its panic ends it, not us.
func guard(fn func()) {
	defer func() { _ = recover() }()
	fn()
}
