package grpc

import (
	"context"
	"errors"
	"fmt"
	"slices"

	ktransport "github.com/go-kratos/kratos/v2/transport"
	"github.com/google/wire"
	stdgrpc "google.golang.org/grpc"
)

// ServerSet provides a *Server, also as a Kratos transport.Server, from a
// []ServerOption.
var ServerSet = wire.NewSet(NewServer, wire.Bind(new(ktransport.Server), new(*Server)))

// ClientSet provides one *grpc.ClientConn, from a Target and a
// []ClientOption, and *Clients, from Destinations. Injectors take the one they
// need; the cleanup lets running calls finish.
var ClientSet = wire.NewSet(ProvideClient, ProvideClients)

// Target is a dial target, see [NewClient].
type Target string

// ProvideClient is [NewClient] in wire's shape: the cleanup is [Close].
func ProvideClient(target Target, opts []ClientOption) (*stdgrpc.ClientConn, func(), error) {
	conn, err := NewClient(string(target), opts...)
	if err != nil {
		return nil, nil, err
	}
	return conn, func() { _ = Close(context.Background(), conn) }, nil
}

// Destinations are the services that an application calls, by a name of its
// own choice.
type Destinations map[string]Destination

// Destination is a target for [NewClient] with the options of its client.
type Destination struct {
	Target  Target
	Options []ClientOption
}

// Clients are the connections to several named destinations. wire tells values
// by their type alone, so they travel as one.
type Clients struct {
	conns map[string]*stdgrpc.ClientConn
}

// ProvideClients connects to all destinations, or reports all faults and
// connects to none. The cleanup closes all, each as [Close] does.
func ProvideClients(destinations Destinations) (*Clients, func(), error) {
	c := &Clients{conns: make(map[string]*stdgrpc.ClientConn, len(destinations))}
	var faults []error
	for name, d := range destinations {
		conn, err := NewClient(string(d.Target), d.Options...)
		if err != nil {
			faults = append(faults, fmt.Errorf("destination %q: %w", name, err))
			continue
		}
		c.conns[name] = conn
	}
	if len(faults) > 0 {
		c.close(context.Background())
		return nil, nil, errors.Join(faults...)
	}
	return c, func() { c.close(context.Background()) }, nil
}

// To returns the connection to a destination. For a name that is not among
// them it returns an error that lists those that are.
func (c *Clients) To(name string) (*stdgrpc.ClientConn, error) {
	if conn, ok := c.conns[name]; ok {
		return conn, nil
	}
	names := make([]string, 0, len(c.conns))
	for known := range c.conns {
		names = append(names, known)
	}
	slices.Sort(names)
	return nil, fmt.Errorf("materpc: no destination %q; there are %q", name, names)
}

// close ends all connections at the same time, so that one that waits for its
// calls does not make the others wait.
func (c *Clients) close(ctx context.Context) {
	done := make(chan struct{})
	for _, conn := range c.conns {
		go func() {
			_ = Close(ctx, conn)
			done <- struct{}{}
		}()
	}
	for range c.conns {
		<-done
	}
}
