package grpc_test

import (
	"context"
	"net"
	"testing"
	"time"

	"golang.org/x/net/http2"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/transport/grpc"
)

// contractRow is one way in which a call can be refused or lost: what a transport
// does to a call, what the linked grpc-go makes of it, what we do.
type contractRow struct {
	name   string
	script func(*rawStream)
	code   codes.Code
	kind   materpc.ErrorKind
	// requests that the only instance sees; where there is a second one it
	// sees at most one, and the call moves when it may.
	requests int64
	moves    bool
}

func contractRows() []contractRow {
	return []contractRow{
		{"RST REFUSED_STREAM", func(s *rawStream) { s.rst(http2.ErrCodeRefusedStream) }, codes.Unavailable, materpc.ServerRefused, 2, true},
		{"GOAWAY below ours", func(s *rawStream) { s.conn.goAway(0) }, codes.Unavailable, materpc.ServerRefused, 2, true},
		{"GOAWAY below ours, close", func(s *rawStream) { s.conn.goAway(0); s.conn.close() }, codes.Unavailable, materpc.ServerRefused, 2, true},
		{"GOAWAY at ours, close", func(s *rawStream) { s.conn.goAway(s.id); s.conn.close() }, codes.Unavailable, materpc.ConnectionLost, 1, false},
		{"TCP close", func(s *rawStream) { s.conn.close() }, codes.Unavailable, materpc.ConnectionLost, 1, false},
		{"TCP RST", func(s *rawStream) { s.conn.reset() }, codes.Unavailable, materpc.ConnectionLost, 1, false},
		{"headers, TCP close", func(s *rawStream) { s.headers(); s.conn.close() }, codes.Unavailable, materpc.ConnectionLost, 1, false},
		{"RST CANCEL", func(s *rawStream) { s.rst(http2.ErrCodeCancel) }, codes.Canceled, materpc.ConnectionLost, 1, false},
		{"RST INTERNAL", func(s *rawStream) { s.rst(http2.ErrCodeInternal) }, codes.Internal, materpc.RemoteOrNetwork, 1, false},
		{"RST ENHANCE_YOUR_CALM", func(s *rawStream) { s.rst(http2.ErrCodeEnhanceYourCalm) }, codes.ResourceExhausted, materpc.Overlimit, 1, false},
		{"headers, RST REFUSED_STREAM", func(s *rawStream) { s.headers(); s.rst(http2.ErrCodeRefusedStream) }, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"trailers-only error", func(s *rawStream) { s.fail(codes.Unavailable, "busy", "x", "y") }, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"headers and trailers error", func(s *rawStream) { s.headers(); s.trailers(codes.Unavailable, "busy", "x", "y") }, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"HTTP 503 of a proxy", func(s *rawStream) { s.http503() }, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"forged text REFUSED_STREAM", func(s *rawStream) {
			s.fail(codes.Unavailable, "stream terminated by RST_STREAM with error code: REFUSED_STREAM")
		}, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"forged text draining", func(s *rawStream) { s.fail(codes.Unavailable, "the connection is draining") }, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"forged text closing, after headers", func(s *rawStream) {
			s.headers()
			s.trailers(codes.Unavailable, "transport is closing")
		}, codes.Unavailable, materpc.RemoteOrNetwork, 1, false},
		{"peer's own Canceled", func(s *rawStream) { s.fail(codes.Canceled, "no") }, codes.Canceled, materpc.RemoteOrNetwork, 1, false},
		{"peer's own DeadlineExceeded", func(s *rawStream) { s.fail(codes.DeadlineExceeded, "late") }, codes.DeadlineExceeded, materpc.RemoteOrNetwork, 1, false},
		{"NotFound", func(s *rawStream) { s.fail(codes.NotFound, "no") }, codes.NotFound, materpc.RemoteOrNetwork, 1, false},
		{"ResourceExhausted of a plain server", func(s *rawStream) { s.fail(codes.ResourceExhausted, "slow down") }, codes.ResourceExhausted, materpc.Overlimit, 1, false},
	}
}

func loopback(t testing.TB) net.Listener {
	t.Helper()
	l, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// TestContract pins, per row, what the linked grpc-go does and what we make of
// it: with one instance and with a second, healthy one.
func TestContract(t *testing.T) {
	t.Parallel()
	for _, row := range contractRows() {
		t.Run(row.name+"/alone", func(t *testing.T) {
			t.Parallel()
			bad := startRaw(t, loopback(t), row.script)
			c := dialClient(t, "direct:///"+bad.listener.Addr().String())
			var header, trailer metadata.MD
			_, err := c.say(t.Context(), stdgrpc.Header(&header), stdgrpc.Trailer(&trailer))
			wantErr(t, err, row.code, row.kind)
			if got := bad.requests.Load(); got != row.requests {
				t.Errorf("the instance saw %d requests, want %d", got, row.requests)
			}
			if n := c.inFlight(); n != 0 {
				t.Errorf("%d in flight, want 0", n)
			}
		})
		t.Run(row.name+"/with another", func(t *testing.T) {
			t.Parallel()
			bad := startRaw(t, loopback(t), row.script)
			good := startRaw(t, loopback(t), answer("good"))
			first := bad.listener.Addr().String()
			c := dialClient(t, "direct:///"+first+","+good.listener.Addr().String(), grpc.WithStrategy(preferring(first)))
			c.awaitReady(t, 2)
			server, err := c.say(t.Context())
			moves := 0
			if row.moves {
				moves = 1
				wantErr(t, err, codes.OK, materpc.NoError)
				if server != "good" {
					t.Errorf("answered by %q, want the other instance", server)
				}
			} else {
				wantErr(t, err, row.code, row.kind)
			}
			if got := [2]int64{bad.requests.Load(), good.requests.Load()}; got != [2]int64{1, int64(moves)} {
				t.Errorf("requests %v, want [1 %d]", got, moves)
			}
			if got := c.moves(); got != moves {
				t.Errorf("%d moves, want %d", got, moves)
			}
		})
	}
}

// TestContractNeverConnected: rows of the table without a request.
func TestContractNeverConnected(t *testing.T) {
	t.Parallel()
	t.Run("connect refused", func(t *testing.T) {
		t.Parallel()
		l := loopback(t)
		_ = l.Close()
		c := dialClient(t, "direct:///"+l.Addr().String())
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.GetConnection)
	})
	t.Run("silent server", func(t *testing.T) {
		t.Parallel()
		silent := startRaw(t, loopback(t), func(*rawStream) {})
		c := dialClient(t, "direct:///"+silent.listener.Addr().String())
		c.awaitReady(t, 1)
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.say(ctx)
		wantErr(t, err, codes.DeadlineExceeded, materpc.TimeoutByBusiness)
	})
	t.Run("no handshake", func(t *testing.T) {
		t.Parallel()
		mute := &rawServer{listener: loopback(t), script: func(*rawStream) {}, onConn: func(net.Conn) bool { return false }}
		mute.start(t)
		c := dialClient(t, "direct:///"+mute.listener.Addr().String())
		ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
		defer cancel()
		_, err := c.say(ctx)
		wantErr(t, err, codes.DeadlineExceeded, materpc.TimeoutByBusiness)
	})
}

// preferring picks the instance at address while it is allowed.
func preferring(address string) inOrder { return inOrder{first: address} }
