// Package health holds the one derived health state of a process.
//
// What is published for a name follows from three things, never from the last
// writer: what the application set ([State.Set]), what its checks say
// ([State.AddCheck]) and where the lifecycle stands ([State.SetPhase]). Check,
// List, Watch and the HTTP handlers read the same table, so they cannot
// disagree, and no lifecycle step overwrites what the application set.
//
//	st := health.New()
//	st.Register("helloworld.v1.Greeter")       // known to the server
//	err := st.AddCheck("db", db.PingContext)   // failing: every name is NOT_SERVING
//	st.Set("helloworld.v1.Greeter", health.NotServing)
//	mux.Handle("/healthz", st.LiveHandler())
//	mux.Handle("/readyz", st.ReadyHandler())
//
// The rule, first match wins: an unknown name is SERVICE_UNKNOWN; any phase but
// [Ready] is NOT_SERVING; what the application set, if that is not [Serving]; a
// failing check whose scope holds the name is NOT_SERVING; else SERVING.
//
// Names are independent of each other, as in the gRPC health protocol: "" is
// the server as a whole and setting it says nothing about a single service.
//
// Defaults: phase [Starting]; a check's result is used for 1 s and a run may
// take 1 s; a check concerns every name.
//
// Not here: the gRPC health service (transport/grpc serves this state), the
// lifecycle that sets the phase (app), and error texts of checks in the HTTP
// answer, which is open to anyone ([State.Checks] has them).
package health
