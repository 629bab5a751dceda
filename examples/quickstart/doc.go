// Command quickstart shows a fleet going through rolling restarts without one
// failed call, on a machine that has only Go:
//
//	go run ./examples/quickstart
//
// It starts servers as processes of their own (itself again), calls them at a
// steady rate by the name discovery:///hello, restarts them one after another
// with SIGTERM, kills one with SIGKILL, and sums up. No retry policy is
// involved.
//
//	-duration 15s   how long the load lasts
//	-rate 500       calls a second; one in ten is a stream of about a second
//	-window 300ms   how long a leaving server still serves; 0 makes callers meet the drain
//	-rtt 10ms       round trip between caller and servers: what servers send arrives so much
//	                later, as in a network; 0 is plain loopback
//	-servers 3      size of the fleet
//	-registry NAME  a registry to share with other processes; default: a directory of its own
//	-json           one JSON object on the last line of standard output
//
// The fields of that object, which are also the words of the summary:
//
//	calls      logical calls that ended, streams included
//	streams    those of them that were streams, of all three shapes
//	failed     calls that ended with an error which no kill explains: want 0
//	lost       calls that were inside the killed process and got no answer; whether they ran
//	           nobody can know, so they are neither failed nor sent again
//	repicked   calls that one server refused and another one served
//	restarts   servers that were restarted with SIGTERM
//	killed     servers that were killed with SIGKILL
//	servers    size of the fleet
//	p50_ms     median latency of the unary calls, from the moment they were due, -rtt included
//	p99_ms     and its 99th percentile
//
// Calls begin for -duration; the last streams end about a second later. On the
// status line each sign is a server (● serves, ◐ leaves, ◌ starts, ○ gone, ✗ killed)
// and the number beside it its answers in the last second; with more than four
// servers there are no numbers.
//
// MATERPC_REGISTRY is not read. The status is 1 when a call failed or a server
// misbehaved. Read script.go for what happens to the fleet, calls.go for what a
// caller writes, server.go for what a server is.
package main
