package selector_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/go-kratos/kratos/v2/middleware"
	kregistry "github.com/go-kratos/kratos/v2/registry"
	kselector "github.com/go-kratos/kratos/v2/selector"
	"github.com/go-kratos/kratos/v2/selector/filter"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	"google.golang.org/grpc"
	"google.golang.org/grpc/health/grpc_health_v1"

	"github.com/materpc/materpc/selector"
)

// staticDiscovery answers one list once.
type staticDiscovery struct{ list []*kregistry.ServiceInstance }

func (d *staticDiscovery) GetService(context.Context, string) ([]*kregistry.ServiceInstance, error) {
	return d.list, nil
}

func (d *staticDiscovery) Watch(ctx context.Context, _ string) (kregistry.Watcher, error) {
	ctx, cancel := context.WithCancel(ctx)
	first := make(chan []*kregistry.ServiceInstance, 1)
	first <- d.list
	return &staticWatcher{ctx: ctx, cancel: cancel, first: first}, nil
}

type staticWatcher struct {
	ctx    context.Context
	cancel context.CancelFunc
	first  chan []*kregistry.ServiceInstance
}

func (w *staticWatcher) Next() ([]*kregistry.ServiceInstance, error) {
	select {
	case list := <-w.first:
		return list, nil
	case <-w.ctx.Done():
		return nil, w.ctx.Err()
	}
}

func (w *staticWatcher) Stop() error {
	w.cancel()
	return nil
}

// kratosFleet runs Kratos's own servers, versions v1 and v2 in turn.
func kratosFleet(t *testing.T, count int) *staticDiscovery {
	t.Helper()
	d := &staticDiscovery{}
	for i := range count {
		srv := kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"))
		endpoint, err := srv.Endpoint()
		if err != nil {
			t.Fatal(err)
		}
		var served sync.WaitGroup
		ctx, cancel := context.WithCancel(context.Background())
		served.Go(func() {
			if err := srv.Start(ctx); err != nil {
				t.Errorf("server %d: %v", i, err)
			}
		})
		t.Cleanup(func() {
			if err := srv.Stop(context.Background()); err != nil {
				t.Errorf("stop server %d: %v", i, err)
			}
			served.Wait()
			cancel()
		})
		d.list = append(d.list, &kregistry.ServiceInstance{
			ID: fmt.Sprint(i), Name: "svc", Version: fmt.Sprintf("v%d", 1+i%2), Endpoints: []string{endpoint.String()},
		})
	}
	return d
}

// Kratos's own transport, v2.9.2, with each strategy as its global selector.
func TestKratosTransportWithOurSelectors(t *testing.T) {
	fleet := kratosFleet(t, 4)
	before := kselector.GlobalSelector()
	t.Cleanup(func() { kselector.SetGlobalSelector(before) })
	for i, st := range strategies() {
		t.Run(label(i, st), func(t *testing.T) {
			kselector.SetGlobalSelector(selector.NewBuilder(st))
			all := callKratos(t, fleet, 400)
			for _, in := range fleet.list {
				within(t, "calls served by "+in.Endpoints[0], all[in.Endpoints[0]], 20, 250)
			}
			v2 := callKratos(t, fleet, 100, kgrpc.WithNodeFilter(filter.Version("v2")))
			if got := v2[fleet.list[1].Endpoints[0]] + v2[fleet.list[3].Endpoints[0]]; got != 100 {
				t.Errorf("calls served by v2 under the version filter: got %d of 100 (%v)", got, v2)
			}
		})
	}
}

// callKratos makes calls with a Kratos client and counts them by the endpoint
// that selector.Peer names.
func callKratos(t *testing.T, d kregistry.Discovery, calls int, opts ...kgrpc.ClientOption) map[string]int {
	t.Helper()
	got := make(map[string]int)
	count := func(next middleware.Handler) middleware.Handler {
		return func(ctx context.Context, req any) (any, error) {
			reply, err := next(ctx, req)
			if p, ok := kselector.FromPeerContext(ctx); ok && p.Node != nil {
				got[p.Node.Scheme()+"://"+p.Node.Address()]++
			}
			return reply, err
		}
	}
	conn, err := kgrpc.DialInsecure(t.Context(), append(opts, kgrpc.WithEndpoint("discovery:///svc"), kgrpc.WithDiscovery(d),
		kgrpc.WithMiddleware(count), kgrpc.WithPrintDiscoveryDebugLog(false))...)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := conn.Close(); err != nil {
			t.Error(err)
		}
	}()
	client := grpc_health_v1.NewHealthClient(conn)
	// Kratos fails a call whose filter leaves none of the nodes connected so far.
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	for ctx.Err() == nil {
		if _, err := client.Check(ctx, &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true)); err == nil {
			break
		}
	}
	clear(got)
	for i := range calls {
		if _, err := client.Check(t.Context(), &grpc_health_v1.HealthCheckRequest{}, grpc.WaitForReady(true)); err != nil {
			t.Fatalf("call %d: %v", i, err)
		}
	}
	return got
}
