// Command client calls hello.v1.Greeter once in each of the four shapes and
// prints what came back.
//
//	go run ./examples/hello/client -name ada
//	go run ./examples/hello/client -target discovery:///front -shape unary
//
// Defaults: target discovery:///hello, all four shapes, 5 s for all calls
// together, and the registry that MATERPC_REGISTRY names, else "local", the
// user's own.
package main
