package grpcshield

import (
	"context"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/connectivity"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/middleware/shield"
)

// owner fails a call that both its shield and the channel would repeat. It is
// asked before each attempt, since a service config may come at any time.
func (c *client) owner(ctx context.Context, cc *grpc.ClientConn, method string, s *shield.Shield) error {
	if c.alone || cc == nil {
		return nil
	}
	if c.resolved.Load() != cc {
		awaitConfig(ctx, cc)
		c.resolved.Store(cc)
	}
	policy := cc.GetMethodConfig(method).RetryPolicy
	if policy == nil {
		return nil
	}
	err := status.Errorf(codes.FailedPrecondition,
		"grpcshield: %s has two owners of its retries: the shield %q, and the retryPolicy (%d attempts) in the service config of the connection to %q. Take one away, dial with grpcshield.Dial, which switches the channel's retries off, or set AllowChannelRetry",
		method, s.Name(), policy.MaxAttempts, cc.CanonicalTarget())
	return &shield.Wished{Err: err, Delay: 0, Stop: true, Final: true}
}

// awaitConfig returns when the connection has had its first service config, if
// it ever gets one: not before a call would be sent, and not later. A connection
// that nobody has used is idle and then connecting until the resolver has
// answered and the balancer has tried.
func awaitConfig(ctx context.Context, cc *grpc.ClientConn) {
	if cc.GetState() == connectivity.Idle {
		cc.Connect()
	}
	for cc.GetState() == connectivity.Connecting {
		if !cc.WaitForStateChange(ctx, connectivity.Connecting) {
			return // the call itself will say so
		}
	}
}
