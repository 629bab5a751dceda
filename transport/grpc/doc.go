// Package grpc assembles a governed gRPC server and client: the two chains, the
// resolver, the balancer, the gate, health and reflection. Connections and
// servers are grpc-go's own, so every gRPC peer and tool works with them.
//
//	srv := grpc.NewServer(grpc.Address("127.0.0.1:0"))
//	hello.RegisterGreeterServer(srv, greeter)
//	app.New(app.Name("hello"), app.Server(srv), app.Registrar(reg)).Run()
//
//	conn, err := grpc.NewClient("discovery:///hello", grpc.WithDiscovery(reg), grpc.WithInsecure())
//	client := hello.NewGreeterClient(conn)
//
// Defaults: no timeout, no retry; a call that its server refused before user
// code ran moves to another instance, at most five times; p2c balancing over a
// subset of 25 connected instances; messages of 4 MB and header lists of 16 KB
// both ways; 3 s to connect an instance, and 10 s at most between tries; Close lets
// running calls finish for 5 s, a drain running handlers as long as Stop's ctx
// says, else 5 s. The API of Kratos's package of the same name exists here with
// the same signatures.
//
// What happened to a call that failed is in materpc.KindOf(err).
//
// It is not a protocol implementation, and it adds no second way to describe a
// service: descriptors and stubs are protoc-gen-go-grpc's.
package grpc
