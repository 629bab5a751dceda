package grpcshield

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"

	"google.golang.org/grpc"

	"github.com/materpc/materpc/middleware/shield"
)

// Client says which shield stands around which part of a connection's calls. At
// least one is needed. Calls without one are left alone.
type Client struct {
	// Unary is around each unary call. It may repeat calls: what runs on this
	// connection must then be safe to run twice.
	Unary *shield.Shield
	// Open is around the opening of a stream. For a server stream that is the RPC
	// up to its first message or header, and may be repeated. For client and
	// bidirectional streams it is the opening alone, which happens once: a shield
	// that may repeat it gives way to Stream, or, without Stream, fails the call.
	// nil means Unary or ByMethod, and without those Stream; a shield without
	// layers means none. A Timeout here bounds the wait for the first message: give
	// streams that may be silent at first a shield of their own.
	Open *shield.Shield
	// Stream is around each later operation of a stream: the reads of server
	// streams after the first, the writes and the CloseSend of client and
	// bidirectional ones, the reads of bidirectional ones. It must not repeat. An
	// operation that fails, or is refused, ends the call. nil means none.
	Stream *shield.Shield
	// ByMethod gives each method ("/package.Service/Method") a shield, in the place
	// of Unary. Leave one of the two out.
	ByMethod *shield.Partitions[string]
	// AllowChannelRetry leaves the retries of a service config switched on, beside
	// those of shields: attempts multiply.
	AllowChannelRetry bool
}

// Dial returns the options that put the shields around the calls of a connection
// and switch the channel's own retries off. The shields are outside of all
// interceptors that are chained by later options: these see each attempt. The
// error tells all faults of c at once.
func Dial(c Client) ([]grpc.DialOption, error) {
	conn, err := c.compile()
	if err != nil {
		return nil, err
	}
	conn.alone = true
	options := []grpc.DialOption{
		grpc.WithChainUnaryInterceptor(conn.callUnary),
		grpc.WithChainStreamInterceptor(conn.openStream),
	}
	if !c.AllowChannelRetry {
		options = append(options, grpc.WithDisableRetry())
	}
	return options, nil
}

// UnaryInterceptor is the unary half of [Dial] for a connection that somebody
// else dials. A call whose shield may repeat it fails if the service config has a
// retry policy for its method, unless AllowChannelRetry says otherwise; to see
// that, the first such call waits for the resolver, as the call itself would.
func UnaryInterceptor(c Client) (grpc.UnaryClientInterceptor, error) {
	conn, err := c.compile()
	if err != nil {
		return nil, err
	}
	return conn.callUnary, nil
}

// StreamInterceptor is the other half, see [UnaryInterceptor].
func StreamInterceptor(c Client) (grpc.StreamClientInterceptor, error) {
	conn, err := c.compile()
	if err != nil {
		return nil, err
	}
	return conn.openStream, nil
}

// client is a compiled Client. It is shared by all calls.
type client struct {
	unary, open, stream plan
	byMethod            *shield.Partitions[string]
	// alone: no other retries, or they are wanted.
	alone    bool
	resolved atomic.Pointer[grpc.ClientConn] // the last that had its first service config
}

// plan is a shield with what it may do, read once.
type plan struct {
	*shield.Shield
	repeats  bool
	overlaps bool
}

func planOf(s *shield.Shield) plan {
	if s == nil {
		return plan{}
	}
	t := s.Traits()
	return plan{Shield: s, repeats: t.MaxAttempts != 1, overlaps: t.Concurrent}
}

func (c Client) compile() (*client, error) {
	var faults []error
	if c.Unary == nil && c.Open == nil && c.Stream == nil && c.ByMethod == nil {
		faults = append(faults, errors.New("grpcshield: Client has no shield: give Unary, Open, Stream or ByMethod"))
	}
	if c.Unary != nil && c.ByMethod != nil {
		faults = append(faults, errors.New("grpcshield: Client has Unary and ByMethod, which are for the same calls: leave one out"))
	}
	stream := planOf(c.Stream)
	if stream.repeats {
		faults = append(faults, fmt.Errorf("grpcshield: Client.Stream may repeat its work (%s), and an operation of a stream happens once: give it no Retry or Hedge", c.Stream))
	}
	if len(faults) > 0 {
		return nil, errors.Join(faults...)
	}
	return &client{
		unary: planOf(c.Unary), open: planOf(c.Open), stream: stream,
		byMethod: c.ByMethod, alone: c.AllowChannelRetry,
	}, nil
}

// unaryPlan returns the shield of a method's unary calls, an empty plan for none.
func (c *client) unaryPlan(ctx context.Context, method string) (plan, error) {
	if c.byMethod == nil {
		return c.unary, nil
	}
	s, err := c.byMethod.Get(ctx, method)
	if err != nil {
		return plan{}, err
	}
	return planOf(s), nil
}

// openPlan returns the shield of a stream's opening, an empty plan for none.
func (c *client) openPlan(ctx context.Context, method string) (plan, error) {
	if c.open.Shield != nil {
		return c.open, nil
	}
	p, err := c.unaryPlan(ctx, method)
	if p.Shield == nil && err == nil {
		p = c.stream
	}
	return p, err
}
