package grpc

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	kselector "github.com/go-kratos/kratos/v2/selector"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/types/known/emptypb"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/budget"
	"github.com/materpc/materpc/selector"
)

// client is what governs one ClientConn. The ClientConn is grpc-go's own; the
// client lives in its interceptors, its resolver and its balancer.
type client struct {
	target       target
	name         string
	destination  string
	scheme       string // of endpoints in discovery: grpc or grpcs
	nonce        string
	header       clientHeader
	epoch        time.Time // of the clock that statistics use
	observers    observers
	unaryUser    []middleware.Middleware
	streamUser   []middleware.Middleware
	chain        clientHandler
	attempt      clientHandler // the chain of one try
	filters      []kselector.NodeFilter
	hashKey      func(context.Context) string
	strategy     selector.Strategy
	timeout      time.Duration
	subset       int
	drainGrace   time.Duration
	closeWait    time.Duration
	healthCheck  bool
	layered      bool // code of users may run between a call's start and its pick
	textsHold    func() bool
	textsWarning sync.Once

	budget budget.Budget
	moved  atomic.Int64

	doneSlots sync.Pool // of *doneSlot

	fleet      atomic.Pointer[fleet]             // the balancer, once there is one
	discovered atomic.Pointer[discoveryResolver] // of a discovery target, once there is one

	running atomic.Int64
	closing atomic.Bool
	drained sync.Once
	idle    chan struct{} // closed when running reaches 0 while closing
}

// NewClient returns a ClientConn for target, governed by materpc: use it with
// generated stubs. It does no I/O and starts no goroutine of its own; grpc-go
// connects in the background. Targets:
//
//	discovery:///NAME   instances of NAME, see [WithDiscovery]
//	direct:///A:1,B:2   a fixed list of host:port
//	static:///A:1?weight=9,B:2
//	                    the same with weights
//	dns:///HOST:PORT    addresses of HOST; host:port alone means the same;
//	                    dns://SERVER/HOST:PORT asks that DNS server
//	dns+srv:///NAME     SRV records, with priority and weight
//	passthrough:///X    X as it is, for a dialer of one's own
//	unix:PATH           a socket
//
// Credentials are required: [WithInsecure], [WithTLSConfig], [WithCredentials]
// or a DialOption. All faults of target and options are reported at once.
// Close the connection with its Close, which ends running calls, or with
// [Close], which lets them finish.
func NewClient(target string, opts ...ClientOption) (*stdgrpc.ClientConn, error) {
	o := defaultClientOptions()
	o.apply(opts)
	if o.endpoint != "" && o.endpoint != target {
		o.fault("WithEndpoint(%q): NewClient has its target already; leave it out, or use Dial", o.endpoint)
	}
	o.endpoint = target
	return o.dial()
}

// Dial returns a ClientConn as Kratos's Dial does: the target comes from
// [WithEndpoint], the connection is TLS. The ctx is not kept.
func Dial(_ context.Context, opts ...ClientOption) (*stdgrpc.ClientConn, error) {
	o := defaultClientOptions()
	o.secure = true
	o.apply(opts)
	return o.dial()
}

// DialInsecure is [Dial] without transport security.
func DialInsecure(_ context.Context, opts ...ClientOption) (*stdgrpc.ClientConn, error) {
	o := defaultClientOptions()
	WithInsecure()(&o)
	o.apply(opts)
	return o.dial()
}

// now is the client's clock, in monotonic nanoseconds.
func (c *client) now() int64 { return int64(time.Since(c.epoch)) }

func newNonce() string { return rand.Text()[:16] }

// probeMethod finds the client behind a ClientConn: no service can register a
// method of that name, and no call of it leaves the process.
const probeMethod = "/materpc.probe/"

// probe travels as an option: messages are for everybody's eyes.
type probe struct {
	stdgrpc.EmptyCallOption
	client *client
}

// find hands the client to the probe among opts.
func (c *client) find(opts []stdgrpc.CallOption) {
	for _, opt := range opts {
		if p, ok := opt.(*probe); ok {
			p.client = c
		}
	}
}

var (
	errProbed     = errors.New("materpc: the probe was answered")
	errUnanswered = errors.New("nobody answers the probe")
)

// clientOf finds the client behind conn by a unary probe, and by a stream where
// a raw interceptor of a user stands before ours and answers calls itself.
func clientOf(conn *stdgrpc.ClientConn) (*client, error) {
	var (
		p   probe
		err error
	)
	guard(func() {
		err = conn.Invoke(context.Background(), probeMethod, &emptypb.Empty{}, &emptypb.Empty{}, &p) //nolint:contextcheck // answered by our own interceptor
	})
	if p.client == nil {
		// Where nobody of ours answers, this opens no stream.
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		guard(func() {
			_, failure := conn.NewStream(ctx, &stdgrpc.StreamDesc{ClientStreams: true, ServerStreams: true}, probeMethod, &p) //nolint:contextcheck // as above
			err = errors.Join(err, failure)
		})
	}
	if p.client == nil {
		return nil, fmt.Errorf("materpc: the connection to %q is not governed by materpc: make it with NewClient (%w)", conn.Target(), errors.Join(errUnanswered, err))
	}
	return p.client, nil
}

// unary is the outermost interceptor: one run is one logical call.
func (c *client) unary(ctx context.Context, method string, req, reply any, cc *stdgrpc.ClientConn, invoker stdgrpc.UnaryInvoker, opts ...stdgrpc.CallOption) error {
	if method == probeMethod {
		c.find(opts)
		return nil
	}
	call := c.newCall(ctx, method, materpc.Unary, cc, opts)
	call.reply, call.invoker = reply, invoker
	return c.chain(call, call, req)
}

// enter counts a call in, until leave; a client that is closing refuses it.
func (c *client) enter() error {
	c.running.Add(1)
	if c.closing.Load() { // after the Add: Close either sees the call or is seen
		return materpc.Classified(materpc.Local, reasoned(materpc.Local, stdgrpc.ErrClientConnClosing, nil), nil) //nolint:staticcheck // what grpc-go says in this case
	}
	return nil
}

func (c *client) leave() {
	if c.running.Add(-1) == 0 && c.closing.Load() {
		c.drained.Do(func() { close(c.idle) })
	}
}

// Close closes a connection made by this package and lets running calls of all
// shapes finish first, up to the close wait (5 s, [WithCloseWait]) and no longer than
// ctx; then they end. New calls are refused at once. It returns an error for a
// connection of another origin, and for one whose raw interceptors answer calls
// and streams without us, which it closes all the same.
func Close(ctx context.Context, conn *stdgrpc.ClientConn) error {
	c, err := clientOf(conn)
	if err != nil {
		return errors.Join(err, conn.Close())
	}
	c.closing.Store(true)
	wait, cancel := context.WithTimeout(ctx, c.closeWait)
	defer cancel()
	if c.running.Load() > 0 {
		select {
		case <-c.idle:
		case <-wait.Done():
		}
	}
	err = conn.Close()
	if status.Code(err) == codes.Canceled { // it was closed before
		return nil
	}
	return err
}
