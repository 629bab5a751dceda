package grpc

import (
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/reflection"
)

// registerReflection registers v1 and v1alpha.
func registerReflection(s *Server) { reflection.Register(s) }

// untilDrain ends a stream of a built-in service when the server drains: its
// handler waits for the caller, who has no reason to end. The handler runs
// beside; when the status is out grpc-go cancels its stream, which ends it.
// Stop waits for that.
func (s *Server) untilDrain(handler stdgrpc.StreamHandler) stdgrpc.StreamHandler {
	return func(srv any, ss stdgrpc.ServerStream) error {
		select {
		case <-s.ending:
			return errDraining
		default:
		}
		done := make(chan error, 1)
		s.workers.Go(func() {
			err := error(errPanic)
			defer func() { done <- err }()
			guard(func() { err = handler(srv, ss) })
		})
		select {
		case err := <-done:
			return err
		case <-s.ending:
			return errDraining
		}
	}
}
