package interop_test

import (
	"context"
	"crypto/tls"
	"testing"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/encoding/gzip"
	"google.golang.org/grpc/interop"
	testgrpc "google.golang.org/grpc/interop/grpc_testing"
)

// caseBound ends a case that hangs.
const caseBound = 20 * time.Second

// officialCase is one case of doc/interop-test-descriptions.md in grpc/grpc.
type officialCase struct {
	name string
	run  func(ctx context.Context, conn *stdgrpc.ClientConn)
}

// onService is a case that needs the test service alone.
func onService(
	do func(ctx context.Context, client testgrpc.TestServiceClient, opts ...stdgrpc.CallOption), opts ...stdgrpc.CallOption,
) func(context.Context, *stdgrpc.ClientConn) {
	return func(ctx context.Context, conn *stdgrpc.ClientConn) {
		do(ctx, testgrpc.NewTestServiceClient(conn), opts...)
	}
}

var zipped = stdgrpc.UseCompressor(gzip.Name)

var officialCases = []officialCase{
	{"empty_unary", onService(interop.DoEmptyUnaryCall)},
	{"large_unary", onService(interop.DoLargeUnaryCall)},
	{"large_unary gzip", onService(interop.DoLargeUnaryCall, zipped)},
	{"client_streaming", onService(interop.DoClientStreaming)},
	{"client_streaming gzip", onService(interop.DoClientStreaming, zipped)},
	{"server_streaming", onService(interop.DoServerStreaming)},
	{"server_streaming gzip", onService(interop.DoServerStreaming, zipped)},
	{"ping_pong", onService(interop.DoPingPong)},
	{"ping_pong gzip", onService(interop.DoPingPong, zipped)},
	{"empty_stream", onService(interop.DoEmptyStream)},
	{"timeout_on_sleeping_server", onService(interop.DoTimeoutOnSleepingServer)},
	{"cancel_after_begin", onService(interop.DoCancelAfterBegin)},
	{"cancel_after_first_response", onService(interop.DoCancelAfterFirstResponse)},
	{"custom_metadata", onService(interop.DoCustomMetadata)},
	{"status_code_and_message", onService(interop.DoStatusCodeAndMessage)},
	{"special_status_message", onService(interop.DoSpecialStatusMessage)},
	{"unimplemented_method", interop.DoUnimplementedMethod},
	{"unimplemented_service", func(ctx context.Context, conn *stdgrpc.ClientConn) {
		interop.DoUnimplementedService(ctx, testgrpc.NewUnimplementedServiceClient(conn))
	}},
	{"rpc_soak", func(ctx context.Context, conn *stdgrpc.ClientConn) {
		interop.DoSoakTest(ctx, interop.SoakTestConfig{
			RequestSize: 271828, ResponseSize: 314159, PerIterationMaxAcceptableLatency: 5 * time.Second,
			OverallTimeout: caseBound, ServerAddr: conn.Target(), NumWorkers: 2, Iterations: 10,
			ChannelForTest: func() (*stdgrpc.ClientConn, func()) { return conn, func() {} },
		})
	}},
}

// TestOfficialCases runs the official cases between us and plain grpc-go, each
// pairing in plain text and with TLS.
func TestOfficialCases(t *testing.T) {
	serverTLS, clientTLS := testTLS(t)
	for _, security := range []struct {
		name           string
		server, client *tls.Config
	}{
		{"plain text", nil, nil},
		{"TLS", serverTLS, clientTLS},
	} {
		for _, p := range pairings {
			t.Run(p.name+", "+security.name, func(t *testing.T) {
				addr := p.server(t, security.server, interop.NewTestServer())
				conn := p.client(t, security.client, addr)
				for _, c := range officialCases {
					t.Run(c.name, func(t *testing.T) {
						ctx, cancel := context.WithTimeout(t.Context(), caseBound)
						defer cancel()
						run(t, func() { c.run(ctx, conn) })
					})
				}
			})
		}
	}
}
