package grpc_test

import (
	"context"
	"errors"
	"math"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	kerrors "github.com/go-kratos/kratos/v2/errors"
	"golang.org/x/net/http2"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// Which clock fired: ours, the caller's, or the caller's cancel.
func TestKindOfTheClockThatFired(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		ours   time.Duration
		caller func(context.Context) (context.Context, context.CancelFunc)
		code   codes.Code
		kind   materpc.ErrorKind
		is     error
	}{
		"ours": {time.Second, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Minute)
		}, codes.DeadlineExceeded, materpc.RPCTimeout, context.DeadlineExceeded},
		"ours, no deadline": {time.Second, context.WithCancel, codes.DeadlineExceeded, materpc.RPCTimeout, context.DeadlineExceeded},
		"the caller's": {time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, codes.DeadlineExceeded, materpc.TimeoutByBusiness, context.DeadlineExceeded},
		"the caller's, none of ours": {0, func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Second)
		}, codes.DeadlineExceeded, materpc.TimeoutByBusiness, context.DeadlineExceeded},
		"the caller's cancel": {time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(time.Second, cancel)
			return ctx, cancel
		}, codes.Canceled, materpc.CanceledByBusiness, context.Canceled},
		"the caller's cancel, with a cause": {time.Minute, func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancelCause(ctx)
			time.AfterFunc(time.Second, func() { cancel(errors.New("enough")) })
			return ctx, func() { cancel(nil) }
		}, codes.Canceled, materpc.CanceledByBusiness, context.Canceled},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				a := n.raw("a:1", func(*rawStream) {})
				b := n.raw("b:1", answer("b"))
				c := n.client("direct:///a:1,b:1", ordered, grpc.WithTimeout(test.ours))
				c.awaitReady(t, 2)
				ctx, cancel := test.caller(t.Context())
				defer cancel()
				began := time.Now()
				_, err := c.say(ctx)
				if took := time.Since(began); took != time.Second {
					t.Errorf("took %v, want 1 s", took)
				}
				wantErr(t, err, test.code, test.kind)
				if !errors.Is(err, test.is) {
					t.Errorf("%v is not %v", err, test.is)
				}
				if a.requests.Load() != 1 || b.requests.Load() != 0 {
					t.Error("moved")
				}
				charged := c.fleet()["a:1"].Success < 1
				if want := test.kind == materpc.RPCTimeout; charged != want {
					t.Errorf("charged %v, want %v", charged, want)
				}
			})
		})
	}
}

// A call that waits for a connection until its deadline is the caller's.
func TestDeadlineWhileNothingIsReady(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		c := n.client("direct:///a:1")
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		_, err := c.say(ctx, stdgrpc.WaitForReady(true))
		wantErr(t, err, codes.DeadlineExceeded, materpc.TimeoutByBusiness)
		if !strings.Contains(err.Error(), "nobody listens at a:1") {
			t.Errorf("%v does not tell the last cause", err)
		}
	})
}

// B07 without a policy: Canceled while the caller's ctx is alive is the node's
// failure, charged and not moved; the caller's own cancel is neutral.
func TestCaseB07CanceledWithALiveContextIsTheNodes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(s *rawStream) {
			if s.ordinal == 1 {
				s.rst(http2.ErrCodeCancel)
			}
		})
		b := n.raw("b:1", answer("b"))
		c := n.client("direct:///a:1,b:1", ordered)
		c.awaitReady(t, 2)
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Canceled, materpc.ConnectionLost)
		if got := c.fleet()["a:1"]; got.Results != 1 || got.Success == 1 || b.requests.Load() != 0 {
			t.Errorf("%+v, b saw %d", got, b.requests.Load())
		}
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, cancel)
		_, err = c.say(ctx)
		wantErr(t, err, codes.Canceled, materpc.CanceledByBusiness)
		if got := c.fleet()["a:1"]; got.Results != 1 {
			t.Errorf("the caller's cancel was charged: %+v", got)
		}
	})
}

// The ClientConn is closed under a running call: the caller never cancelled.
func TestCaseB07CloseUnderARunningCall(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(*rawStream) {})
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		time.AfterFunc(time.Second, func() { _ = c.conn.Close() })
		_, err := c.say(t.Context())
		if kind := materpc.KindOf(err); kind != materpc.ConnectionLost {
			t.Errorf("%v, kind %v", err, kind)
		}
		_, err = c.say(t.Context())
		if kind := materpc.KindOf(err); kind != materpc.Local {
			t.Errorf("on a closed connection: %v, kind %v", err, kind)
		}
	})
}

type brokenCredentials struct{ err error }

func (b brokenCredentials) GetRequestMetadata(context.Context, ...string) (map[string]string, error) {
	return nil, b.err
}
func (brokenCredentials) RequireTransportSecurity() bool { return false }

// What our own grpc-go refuses is nobody's fault, and goes nowhere.
func TestLocalErrors(t *testing.T) {
	t.Parallel()
	big := strings.Repeat("x", 5<<20)
	for name, test := range map[string]struct {
		ctx  func(context.Context) context.Context
		opts []stdgrpc.CallOption
		name string
		code codes.Code
	}{
		"per-RPC credentials":                      {opts: []stdgrpc.CallOption{stdgrpc.PerRPCCredentials(brokenCredentials{errors.New("no token")})}, code: codes.Internal},
		"per-RPC credentials, saying Unavailable":  {opts: []stdgrpc.CallOption{stdgrpc.PerRPCCredentials(brokenCredentials{status.Error(codes.Unavailable, "transport is closing")})}, code: codes.Unavailable},
		"per-RPC credentials, saying the deadline": {opts: []stdgrpc.CallOption{stdgrpc.PerRPCCredentials(brokenCredentials{context.DeadlineExceeded})}, code: codes.Internal},
		"header list": {ctx: func(ctx context.Context) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "big", strings.Repeat("y", 20<<10))
		}, code: codes.Internal},
		"charset": {ctx: func(ctx context.Context) context.Context {
			return metadata.AppendToOutgoingContext(ctx, "name", "größe")
		}, code: codes.Internal},
		"compressor":          {opts: []stdgrpc.CallOption{stdgrpc.UseCompressor("lzma")}, code: codes.Internal},
		"message too large":   {name: big, code: codes.ResourceExhausted},
		"authority over TCP":  {opts: []stdgrpc.CallOption{stdgrpc.CallAuthority("other")}, code: codes.OK},
		"reply too large":     {opts: []stdgrpc.CallOption{stdgrpc.MaxCallRecvMsgSize(1)}, code: codes.ResourceExhausted},
		"message below limit": {opts: []stdgrpc.CallOption{stdgrpc.MaxCallSendMsgSize(1)}, name: "ada", code: codes.ResourceExhausted},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				settings := []http2.Setting{{ID: http2.SettingMaxHeaderListSize, Val: 16 << 10}}
				var servers []*rawServer
				for _, address := range []string{"a:1", "b:1"} {
					s := &rawServer{listener: n.listen(address), script: answer("a server with a name"), settings: settings}
					s.start(t)
					servers = append(servers, s)
				}
				c := n.client("direct:///a:1,b:1", ordered)
				c.awaitReady(t, 2)
				synctest.Wait() // the settings are here
				ctx := t.Context()
				if test.ctx != nil {
					ctx = test.ctx(ctx)
				}
				_, err := c.SayHello(ctx, &hellov1.SayHelloRequest{Name: test.name}, test.opts...)
				if test.code == codes.OK {
					wantErr(t, err, codes.OK, materpc.NoError)
					return
				}
				wantErr(t, err, test.code, materpc.Local)
				if c.moves() != 0 || servers[1].requests.Load() != 0 {
					t.Error("moved")
				}
				for _, v := range c.fleet() {
					if v.Results != 0 || v.InFlight != 0 {
						t.Errorf("charged: %+v", v)
					}
				}
			})
		})
	}
}

// The peer's word about sizes is the peer's, not Local and never Overlimit.
func TestPeersSizeErrorsAreRemote(t *testing.T) {
	t.Parallel()
	for _, text := range []string{"grpc: received message larger than max (5 vs. 4)", "grpc: trying to send message larger than max (5 vs. 4)"} {
		t.Run(text, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				n.raw("a:1", func(s *rawStream) { s.fail(codes.ResourceExhausted, text) })
				c := n.client("direct:///a:1")
				c.awaitReady(t, 1)
				_, err := c.say(t.Context())
				wantErr(t, err, codes.ResourceExhausted, materpc.RemoteOrNetwork)
			})
		})
	}
}

// B26 for WithTimeout.
func TestCaseB26TimeoutValues(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		timeout  time.Duration
		bounded  bool
		kind     materpc.ErrorKind
		rejected bool
	}{
		"0":                  {0, false, materpc.NoError, false},
		"100 years":          {100 * 365 * 24 * time.Hour, false, materpc.NoError, false},
		"the largest number": {math.MaxInt64, false, materpc.NoError, false},
		"1 s":                {time.Second, true, materpc.NoError, false},
		"1 ns":               {1, true, materpc.RPCTimeout, false},
		"-1 s":               {-time.Second, false, materpc.NoError, true},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				n := newNet(t)
				if test.rejected {
					_, err := grpc.NewClient("direct:///a:1", grpc.WithInsecure(), grpc.WithTimeout(test.timeout))
					if err == nil || !strings.Contains(err.Error(), "WithTimeout(-1s)") {
						t.Fatalf("%v does not name the option", err)
					}
					return
				}
				var announced []string
				n.raw("a:1", func(s *rawStream) {
					announced = s.header["grpc-timeout"]
					if test.kind == materpc.NoError {
						answer("a")(s)
					}
				})
				c := n.client("direct:///a:1", grpc.WithTimeout(test.timeout))
				c.awaitReady(t, 1)
				_, err := c.say(t.Context())
				if test.kind != materpc.NoError {
					wantErr(t, err, codes.DeadlineExceeded, test.kind)
					return
				}
				wantErr(t, err, codes.OK, materpc.NoError)
				if (len(announced) > 0) != test.bounded {
					t.Errorf("announced %v", announced)
				}
			})
		})
	}
}

// Behind a peer with our gate an unproved refusal is somebody else's; without
// one it is the peer's own.
func TestBlameIsHopLocal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(s *rawStream) {
			switch s.ordinal {
			case 1:
				s.fail(codes.ResourceExhausted, "slow down")
			case 2:
				s.refuse(wire.Limited, "")
			default:
				s.fail(codes.ResourceExhausted, "slow down")
			}
		})
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		_, err := c.say(t.Context())
		wantErr(t, err, codes.ResourceExhausted, materpc.Overlimit)
		if got := c.fleet()["a:1"]; got.Results != 1 || got.Gated {
			t.Errorf("%+v", got)
		}
		_, err = c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.Overlimit)
		_, err = c.say(t.Context())
		wantErr(t, err, codes.ResourceExhausted, materpc.RemoteOrNetwork)
		if got := c.fleet()["a:1"]; got.Results != 1 || !got.Gated {
			t.Errorf("a relayed status was charged: %+v", got)
		}
	})
}

func TestBusinessErrors(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(s *rawStream) {
			switch s.ordinal {
			case 1:
				s.fail(codes.Internal, "sold out", "biz-status", "4711", "biz-extra", `{"sku":"7"}`)
			case 2:
				s.fail(codes.Internal, "sold out", "biz-status", "many")
			case 3:
				s.fail(codes.Internal, "sold out", "biz-status", "4711", "biz-extra", `{"sku":`)
			}
		})
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		_, err := c.say(t.Context())
		biz, ok := materpc.BizErrorOf(err)
		if !ok || biz.BizStatusCode() != 4711 || biz.BizMessage() != "sold out" || biz.BizExtra()["sku"] != "7" || materpc.KindOf(err) != materpc.Biz {
			t.Errorf("%v: %+v", err, biz)
		}
		if status.Code(err) != codes.Internal || kerrors.FromError(err).Code != 500 || kerrors.Reason(err) != "BIZ" {
			t.Errorf("status %v, Kratos %v", status.Code(err), kerrors.FromError(err))
		}
		if got := c.fleet()["a:1"]; got.Success != 1 || got.Results != 1 {
			t.Errorf("a business error was charged: %+v", got)
		}
		_, err = c.say(t.Context())
		wantErr(t, err, codes.Internal, materpc.RemoteOrNetwork)
		_, err = c.say(t.Context())
		if biz, ok := materpc.BizErrorOf(err); !ok || biz.BizExtra() != nil {
			t.Errorf("malformed extra: %v", err)
		}
	})
}

// What an error of the client can be asked.
func TestErrorsAnswerInEveryVocabulary(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		n.raw("a:1", func(s *rawStream) {
			detailed, _ := status.New(codes.NotFound, "no such user").WithDetails(&hellov1.SayHelloRequest{Name: "detail"})
			s.fail(codes.NotFound, "no such user", "grpc-status-details-bin", detailsBin(detailed))
		})
		c := n.client("direct:///a:1")
		c.awaitReady(t, 1)
		_, err := c.say(t.Context())
		var ours *materpc.Error
		if !errors.As(err, &ours) || ours.Peer().Address != "a:1" || ours.Kind() != materpc.RemoteOrNetwork {
			t.Errorf("errors.As: %+v", ours)
		}
		s, ok := status.FromError(err)
		if !ok || s.Message() != "no such user" || len(s.Details()) != 1 {
			t.Errorf("status %v, details %v", s, s.Details())
		}
		if got := kerrors.FromError(err); got.Code != 404 || got.Message != "no such user" {
			t.Errorf("Kratos %v", got)
		}
	})
	synctest.Test(t, func(t *testing.T) {
		n := newNet(t)
		c := n.client("direct:///a:1", grpc.WithOptions(stdgrpc.WithContextDialer(func(context.Context, string) (net.Conn, error) {
			return nil, errDial
		})))
		_, err := c.say(t.Context())
		wantErr(t, err, codes.Unavailable, materpc.GetConnection)
		if !strings.Contains(err.Error(), errDial.Error()) {
			t.Errorf("%v does not tell the cause", err)
		}
	})
}

var errDial = errors.New("the cable is cut")
