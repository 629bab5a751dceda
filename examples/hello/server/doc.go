// Command server runs hello.v1.Greeter and registers it.
//
//	go run ./examples/hello/server -addr 127.0.0.1:0 -registry local
//
// It prints "listening on HOST:PORT" once it serves and is registered. SIGTERM
// and SIGINT stop it in order: deregister, let callers learn of it, finish
// calls, end; a second one ends the waits.
//
// Defaults: a free port of 127.0.0.1, a window of 2 s, and the registry that
// MATERPC_REGISTRY names, else "local", the user's own.
package main
