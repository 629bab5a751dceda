package grpc

import (
	"context"
	"errors"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

// serverHandler is the rest of the chain below a layer.
type serverHandler func(*serverCall) (reply any, err error)

type serverLayer struct {
	name string
	wrap func(next serverHandler) serverHandler
}

// serverLayers is the chain of a server, outermost first. It is built once; a
// call brings its state along, so a layer allocates nothing per call.
func (s *Server) serverLayers() []serverLayer {
	return []serverLayer{
		{"gate", s.gateLayer},         // before a message is decoded; holds permits until the work has settled
		{"call", s.callLayer},         // start and finish, exactly once
		{"recovery", s.recoveryLayer}, // below what observes, so that a panic is seen as Internal
		{"deadline", s.deadlineLayer}, // late calls do not run
		{"errors", s.errorLayer},      // what handlers return becomes what travels
	}
}

// serverLayerNames lists the chain for people, the user's part included.
func serverLayerNames() []string {
	var names []string
	for _, layer := range (&Server{}).serverLayers() {
		names = append(names, layer.name)
	}
	return append(names, "middlewares", "interceptors", "handler")
}

func (s *Server) compileChain() serverHandler {
	chain := serverHandler(callUser)
	layers := s.serverLayers()
	for i := len(layers) - 1; i >= 0; i-- {
		chain = layers[i].wrap(chain)
	}
	return chain
}

func (s *Server) gateLayer(next serverHandler) serverHandler {
	return func(c *serverCall) (any, error) {
		s.inflight.add(c)
		defer s.settle(c)
		if refusal := s.admit(c); refusal != nil {
			c.refused = true
			return s.refusedCall(c, refusal)
		}
		return next(c)
	}
}

// refusedCall makes a refusal a complete RPC.
func (s *Server) refusedCall(c *serverCall, refusal *Refusal) (any, error) {
	c.ctx = s.observers.start(c, &c.RPCInfo)
	err := s.refuse(c, refusal)
	c.Finish(err)
	s.observers.finish(c.ctx, &c.RPCInfo, err)
	return nil, err
}

// settle gives the call's permits and its place in the drain back: at once, or
// when what the call still has to do is done. The ctx of grpc-go's stream ends
// once the status is written.
func (s *Server) settle(c *serverCall) {
	if !c.HasAfter() && (c.refused || s.draining.Load() == nil) {
		s.release(c)
		return
	}
	context.AfterFunc(c.Outer(), func() {
		defer s.release(c) // deferred: a function may end its goroutine
		c.RunAfter(c)
	})
}

func (s *Server) release(c *serverCall) {
	c.permits.release(&c.RPCInfo)
	s.inflight.remove(c)
	if s.draining.Load() != nil {
		s.inflight.notify()
	}
}

func (s *Server) callLayer(next serverHandler) serverHandler {
	return func(c *serverCall) (reply any, err error) {
		c.ctx = s.observers.start(c, &c.RPCInfo)
		ctx := c.ctx
		err = errHandlerExited // stands when the goroutine ends below us
		defer func() {
			if !c.state.CompareAndSwap(callRunning, callReturned) {
				reply, err = nil, errAborted
			}
			c.Finish(err)
			s.observers.finish(ctx, &c.RPCInfo, err)
		}()
		return next(c)
	}
}

// errAborted is what a call gets whose handler a shutdown ended.
var errAborted = materpc.Errorf(materpc.ServerDraining, "the server shut down while the call ran")

// deadlineLayer does not run what comes too late, and bounds unary handlers
// with the server's own timeout.
func (s *Server) deadlineLayer(next serverHandler) serverHandler {
	return func(c *serverCall) (any, error) {
		if err := c.ctx.Err(); err != nil {
			return nil, status.FromContextError(err).Err()
		}
		if s.options.timeout == 0 || c.stream != nil {
			return next(c)
		}
		ctx, cancel := context.WithTimeoutCause(c.ctx, s.options.timeout, errServerTimeout)
		defer cancel()
		c.ctx = ctx
		reply, err := next(c)
		if err != nil && isDeadline(err) && context.Cause(ctx) == errServerTimeout { //nolint:errorlint // the very value set above
			err = materpc.Classified(materpc.RPCTimeout, deadlineStatus(err), nil)
		}
		return reply, err
	}
}

var errServerTimeout = errors.New("transport/grpc: the server's timeout for a handler passed")

func isDeadline(err error) bool {
	return errors.Is(err, context.DeadlineExceeded) || status.Code(err) == codes.DeadlineExceeded
}

// deadlineStatus gives a bare context error its status.
func deadlineStatus(err error) error {
	if _, ok := status.FromError(err); ok {
		return err
	}
	return status.FromContextError(err).Err()
}

// errorLayer sends reply headers and business errors the way their readers
// expect them. A failure stays trailers-only: a header frame before it would
// end grpc's own retries.
func (s *Server) errorLayer(next serverHandler) serverHandler {
	return func(c *serverCall) (any, error) {
		reply, err := next(c)
		if c.transport.reply.touched() {
			c.sendReplyHeader(c.transport.reply.md, err != nil)
		}
		if err == nil {
			return reply, nil
		}
		if biz, ok := materpc.BizErrorOf(err); ok {
			c.setTrailer(bizTrailer(biz))
		}
		return reply, err
	}
}

func (c *serverCall) sendReplyHeader(md metadata.MD, failed bool) {
	stream := c.wireStream()
	if stream == nil || len(md) == 0 {
		return
	}
	if failed || stream.SetHeader(md) != nil { // a stream's header may be out already
		_ = stream.SetTrailer(md) // fails only when the call is over
	}
}
