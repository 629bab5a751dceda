package grpc

import (
	"fmt"
	"runtime/debug"

	"github.com/materpc/materpc"
)

// PanicError is the Err of a HandlerPanic event. It stays in this process: the
// peer learns nothing but Internal.
type PanicError struct {
	Value any    // what was passed to panic
	Stack []byte // of the goroutine that panicked
}

// Error returns value and stack.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

var (
	errPanic         = materpc.Errorf(materpc.Panic, "the handler panicked")
	errHandlerExited = materpc.Errorf(materpc.Panic, "the handler ended its goroutine")
)

// recoveryLayer turns a panic of user code into Internal.
func (s *Server) recoveryLayer(next serverHandler) serverHandler {
	return func(c *serverCall) (reply any, err error) {
		defer func() {
			if p := recover(); p != nil {
				s.panicked(c, p)
				reply, err = nil, errPanic
			}
		}()
		return next(c)
	}
}

func (s *Server) panicked(c *serverCall, value any) {
	s.emit(materpc.Event{
		Type: materpc.HandlerPanic, Info: &c.RPCInfo, Kind: materpc.Panic,
		Err: &PanicError{Value: value, Stack: debug.Stack()}, Detail: c.FullMethod(),
	})
}

// serve runs the chain around one call. It is the outermost guard: whatever
// panics beside handlers ends the call, not the process, and a handler that
// ends its goroutine (runtime.Goexit, as testing's FailNow does) still answers.
func (s *Server) serve(c *serverCall) (reply any, err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if p := recover(); p != nil {
			s.panicked(c, p)
			reply, err = nil, errPanic
			return
		}
		c.answer(errHandlerExited.GRPCStatus())
	}()
	reply, err = s.chain(c)
	returned = true
	if err != nil {
		// What wraps a business error is for this process: its reader wants the
		// business message, and grpc-go would send the whole text.
		if biz, ok := materpc.BizErrorOf(err); ok {
			err = biz
		}
	}
	return reply, err
}
