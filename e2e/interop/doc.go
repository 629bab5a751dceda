// Package interop holds the tests of materpc against the rest of the gRPC
// world: the official interop cases in three pairings with plain grpc-go, and
// the two tools that operators use, grpcurl and grpc_health_probe.
//
//	GOWORK=off go test ./...
//
// Everything runs in real time over TCP on loopback. The tools are Go programs:
// the first run builds them at fixed versions into os.UserCacheDir
// (materpc/tools/NAME@VERSION), which takes two minutes and the module proxy;
// later runs take seconds and need neither.
//
// Left out of the official cases: those that need Google's clouds (alts,
// compute_engine, service accounts), pick_first_unary and the ORCA cases, which
// test load-balancing policies of grpc-go that a materpc client refuses. The
// cases of compression are not in grpc-go's package; here the streaming and
// large cases run once more with gzip.
package interop
