// Package app runs a service: one ordered start and one ordered stop.
//
// It has the API of github.com/go-kratos/kratos/v2 (New, App and its options),
// so changing the import path is enough, and runs any Kratos transport.Server.
//
//	a := app.New(
//		app.Name("greeter"),
//		app.Server(grpcServer, httpServer),
//		app.Registrar(registrar),
//	)
//	err := a.Run() // until SIGINT, SIGTERM, SIGQUIT, Stop or the end of Context
//
// The start: validate, bind, before-start hooks, serve, register, after-start
// hooks, ready. A failure anywhere undoes what was done, in reverse, a Register
// in flight included, and Run returns the failure first in its error.
//
// The stop, also under the name Drain: not ready, before-stop hooks,
// deregister, propagation window, stop servers, after-stop hooks. It is written
// down once, in stop.go. A second signal ends every wait and every running
// step, not the order; a third one kills the process as if there were no app.
//
// Defaults: register timeout 10 s, deregister bound 3 s ([RegistrarTimeout] sets
// both), propagation window 2 s, exit wait 5 s, 5 s per stop hook, no
// [StopTimeout]. Start hooks have no bound of their own; Stop ends them.
//
// Servers may implement more than Start and Stop:
//
//	Endpoint() (*url.URL, error)  // Kratos's Endpointer: binds, is registered
//	Ready() <-chan struct{}       // closed when serving: registration waits for it,
//	                              // without a bound; Stop ends the wait
//	Health() *health.State        // the app sets its phase
//	InstanceMetadata() map[string]string // registered under the user's Metadata
//
// What differs from Kratos on purpose: options add up (Server, Endpoint,
// Metadata, Signal), Stop waits for the end of Run, hooks that panic are errors,
// and none of Kratos's lifecycle faults is here (fault_test.go has one test for
// each).
//
// Not here: gRPC (transport/grpc drains itself within its Stop), process
// supervision, dependency injection.
package app
