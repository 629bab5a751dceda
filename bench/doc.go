// Command bench measures what materpc adds to a gRPC call, beside raw grpc-go
// and Kratos, client and server together in this process, over TCP on loopback.
//
//	GOWORK=off go run . [-rounds 500] [-calls 240] [-callers 16] [-json]   # CPU, allocations, goroutines
//	GOWORK=off go run . -rounds 20                                         # allocations alone are judged
//	GOWORK=off go run . -peak                                              # calls a second on all cores
//
// The report goes to standard output as Markdown or JSON, progress to standard
// error. The load is gRPC's own benchmark service with 100 B payloads: unary
// calls, unary calls with a deadline, streams of ten messages both ways and
// streams of ten messages from the server.
//
// How CPU is measured: rounds of a block of calls for each lane, in an order
// drawn anew for each round, GOMAXPROCS=1, process CPU by getrusage. A lane is
// compared with its base within a round; the report gives the median of these
// ratios with its 95 % interval (order statistics). Machines drift by 20 % and
// more, rounds do not.
//
// The control is the base measured twice in each round. If the median of its
// ratios is not within 0.01 of 1.00 the run is void and the exit code 3. Runs of
// fewer than 100 rounds do not judge times. The exit code is 1 when a budget of
// the design is missed, 2 for a wrong flag.
//
// It is not a load generator for a network, and it needs getrusage: any Unix.
package main
