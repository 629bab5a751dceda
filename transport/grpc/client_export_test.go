package grpc

import (
	"context"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/materpc/materpc/registry"
)

// InstanceView is one row of a client's table.
type InstanceView struct {
	Address     string
	ID          string
	Weight      int64
	InFlight    int64
	OpenStreams int64
	Results     int
	Success     float64
	Ready       bool
	Dormant     bool
	Failing     bool
	Gated       bool
}

// FleetView shows the table behind conn, by address and id; nil before the
// first resolver result.
func FleetView(conn *stdgrpc.ClientConn) []InstanceView {
	c, err := clientOf(conn)
	if err != nil {
		return nil
	}
	f := c.fleet.Load()
	if f == nil {
		return nil
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	views := make([]InstanceView, 0, len(f.table))
	for _, in := range f.table {
		stats := in.node.Stats()
		views = append(views, InstanceView{
			Address: in.peer.Address, ID: in.peer.ID, Weight: stats.Weight,
			InFlight: stats.InFlight, OpenStreams: stats.OpenStreams, Results: stats.Results, Success: stats.Success,
			Ready: in.state.Load() == ready, Dormant: in.state.Load() == dormant, Failing: in.state.Load() == failing,
			Gated: in.gated.Load(),
		})
	}
	return views
}

// Leaving counts the instances within their drain grace.
func Leaving(conn *stdgrpc.ClientConn) int {
	c, err := clientOf(conn)
	if err != nil {
		return -1
	}
	f := c.fleet.Load()
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.leaving)
}

// BudgetTokens are what is left of the client's move budget.
func BudgetTokens(conn *stdgrpc.ClientConn) int {
	c, err := clientOf(conn)
	if err != nil {
		return -1
	}
	return c.budget.Tokens()
}

// Nonce is the client's.
func Nonce(conn *stdgrpc.ClientConn) string {
	c, err := clientOf(conn)
	if err != nil {
		return ""
	}
	return c.nonce
}

// ParseTarget shows what a dial target means: scheme, name, authority, and the
// text for grpc-go.
func ParseTarget(text string) (scheme, name, authority, grpcText string, err error) {
	t, err := parseTarget(text)
	if err != nil {
		return "", "", "", "", err
	}
	return t.scheme, t.name, t.authority(), t.text, nil
}

// PickerOf returns the picks that grpc-go would ask for with ctx, which an
// attempt's interceptor has got. Each is done at once, unsent.
func PickerOf(ctx context.Context, conn *stdgrpc.ClientConn) func() error {
	c, err := clientOf(conn)
	if err != nil {
		return func() error { return err }
	}
	info := balancer.PickInfo{Ctx: ctx, FullMethodName: "/bench/Pick"}
	return func() error {
		result, err := c.fleet.Load().picker.Load().Pick(info)
		if err == nil {
			result.Done(balancer.DoneInfo{})
		}
		return err
	}
}

// PushTo returns a function that pushes a list the way a hub does, down to the
// balancer, and returns when it is in force.
func PushTo(conn *stdgrpc.ClientConn) func([]*kregistry.ServiceInstance) {
	c, err := clientOf(conn)
	if err != nil {
		return func([]*kregistry.ServiceInstance) {}
	}
	r := &discoveryResolver{client: c, sink: &stateSink{client: c, ClientConn: toFleet{fleet: c.fleet.Load()}}}
	r.patience = time.NewTimer(0)
	return func(list []*kregistry.ServiceInstance) { r.update(registry.Snapshot{Instances: list, Answered: true}) }
}

// toFleet is grpc-go's part between resolver and balancer.
type toFleet struct {
	resolver.ClientConn
	fleet *fleet
}

func (c toFleet) UpdateState(s resolver.State) error {
	return c.fleet.UpdateClientConnState(balancer.ClientConnState{ResolverState: s})
}

// WidenTwice widens the subset for two calls that found nothing in the same set.
func WidenTwice(conn *stdgrpc.ClientConn) {
	c, err := clientOf(conn)
	if err != nil {
		return
	}
	f := c.fleet.Load()
	p := f.picker.Load()
	f.widen(p)
	f.widen(p)
}
