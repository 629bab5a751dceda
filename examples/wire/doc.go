// Command wire is the front service: it greets through the hello service. Every
// part is made by google/wire from the provider sets of materpc, and the client
// is injected into the business layer. Beside a running examples/hello/server:
//
//	go run ./examples/wire
//	go run ./examples/hello/client -target discovery:///front -shape unary
//
// Defaults: a free port of 127.0.0.1, hello at discovery:///hello. -registry is a
// directory, since the registry is made by local.ProviderSet; the default is the
// user's own, which is "local" for the programs in examples/hello, and
// MATERPC_REGISTRY is not read. Of hello.v1.Greeter it has SayHello only.
package main
