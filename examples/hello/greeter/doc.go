// Package greeter implements the example service hello.v1.Greeter as a plain
// gRPC service: it knows nothing of materpc, and any gRPC server can run it.
//
//	hellov1.RegisterGreeterServer(server, greeter.New(id))
//
// An empty name, or more than MaxHellos greetings or MaxNames names at once, is
// InvalidArgument.
package greeter
