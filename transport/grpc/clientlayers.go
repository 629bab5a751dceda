package grpc

import (
	"context"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// callLayer starts the call and finishes it, exactly once. A stream that was
// established finishes itself.
func (c *client) callLayer(next clientHandler) clientHandler {
	return func(_ context.Context, call *clientCall, req any) (err error) {
		ctx := c.observers.start(call, &call.RPCInfo)
		call.traced = ctx
		err = errLayerPanic // stands when a layer panics or ends the goroutine
		defer func() {
			// A layer that brought a stream of its own left us none to follow.
			if err != nil || call.stream == nil || call.stream.stream() == nil {
				call.attempt.settle(selector.Neutral, c.now()) // if nobody has
				call.finished(err)
			}
		}()
		if err = c.enter(); err == nil {
			err = next(ctx, call, req)
		}
		return err
	}
}

var errLayerPanic error = materpc.Errorf(materpc.Panic, "materpc: a client middleware or interceptor did not return")

// timeoutLayer applies the client's own timeout to unary calls. It never
// extends the caller's deadline.
func (c *client) timeoutLayer(next clientHandler) clientHandler {
	if c.timeout <= 0 {
		return next
	}
	return func(ctx context.Context, call *clientCall, req any) error {
		if call.stream != nil {
			return next(ctx, call, req)
		}
		ctx, cancel := context.WithTimeoutCause(ctx, c.timeout, ownTimeout{call})
		defer cancel()
		return next(ctx, call, req)
	}
}

// ownTimeout is the cause of a ctx that the call's own timeout ended. It names
// the call: a call made inside another one inherits the other's ctx, whose
// timeout is to it the caller's.
type ownTimeout struct{ call *clientCall }

func (ownTimeout) Error() string { return materpc.RPCTimeout.Error() }
func (ownTimeout) Unwrap() error { return materpc.RPCTimeout }

// attemptsLayer runs the call's attempt, moves included.
func (c *client) attemptsLayer(next clientHandler) clientHandler {
	c.attempt = next // a stream whose try is refused later on comes back here
	return func(ctx context.Context, call *clientCall, req any) error {
		call.AddAttempt()
		call.attempt.sealed = nil
		if call.stream != nil {
			return call.stream.establish(ctx)
		}
		if err := call.attempt.run(ctx, req); err != nil {
			return err
		}
		call.attempt.succeeded()
		return nil
	}
}

// metadataLayer puts our header on the try.
func (c *client) metadataLayer(next clientHandler) clientHandler {
	return func(ctx context.Context, call *clientCall, req any) error {
		return next(call.seal(ctx), call, req)
	}
}
