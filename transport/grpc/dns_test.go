package grpc_test

import (
	"context"
	"errors"
	"net"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc/registry/dns"
	"github.com/materpc/materpc/transport/grpc"
)

// countingResolver answers one address and counts.
type countingResolver struct{ lookups atomic.Int32 }

func (r *countingResolver) LookupHost(context.Context, string) ([]string, error) {
	r.lookups.Add(1)
	return []string{"10.0.0.1"}, nil
}

func (*countingResolver) LookupSRV(context.Context, string, string, string) (string, []*net.SRV, error) {
	return "", nil, errors.New("not asked for here")
}

// TestLostConnectionsAskDNSAgain: a name is looked up again on a timer of 30 s,
// and before that, at most every 5 s, when a connection is lost. A hub opening its
// watch takes up to three of the lookups.
func TestLostConnectionsAskDNSAgain(t *testing.T) {
	for name, test := range map[string]struct {
		dial func(context.Context, string) (net.Conn, error)
		want func(int32) bool
	}{
		"lost": {func(context.Context, string) (net.Conn, error) { return nil, errors.New("refused") }, func(n int32) bool { return n >= 5 && n <= 8 }},
		"kept": {func(ctx context.Context, _ string) (net.Conn, error) { <-ctx.Done(); return nil, ctx.Err() }, func(n int32) bool { return n <= 3 }},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				resolver := new(countingResolver)
				conn, err := grpc.NewClient("discovery:///orders.example:9000", grpc.WithInsecure(),
					grpc.WithDiscovery(dns.New(dns.WithResolver(resolver))), grpc.WithConnectTimeout(time.Minute),
					grpc.WithOptions(stdgrpc.WithContextDialer(test.dial)))
				if err != nil {
					t.Fatal(err)
				}
				time.Sleep(20 * time.Second)
				if got := resolver.lookups.Load(); !test.want(got) {
					t.Errorf("%d lookups within 20 s", got)
				}
				if err := conn.Close(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}
