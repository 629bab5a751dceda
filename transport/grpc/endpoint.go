package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"sync"
	"syscall"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/registry"
)

// Endpoint returns the URL to publish, grpc://host:port or grpcs://host:port
// with TLS. The first call binds, so that a port 0 is a real one. An explicit
// host stays as given; a wildcard becomes an address that others can dial, and
// a machine without one is an error. Faults of options and registrations are
// reported here too; a server that runs already goes on.
func (s *Server) Endpoint() (*url.URL, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stop != nil {
		return nil, errors.New("transport/grpc: Endpoint: the server is stopped")
	}
	if err := errors.Join(errors.Join(s.faults...), s.bindLocked()); err != nil {
		if !s.started { // what serves goes on
			s.unbindLocked()
		}
		return nil, err
	}
	if s.endpoint == nil {
		return nil, s.adviseLocked()
	}
	published := *s.endpoint
	return &published, nil
}

// bindLocked listens, once.
func (s *Server) bindLocked() error {
	if s.listener == nil {
		s.listener = s.options.listener
	}
	if s.listener == nil {
		listener, err := new(net.ListenConfig).Listen(context.Background(), s.options.network, s.options.address)
		if err != nil {
			return fmt.Errorf("transport/grpc: Address %q, Network %q cannot be bound: %w; %s", s.options.address, s.options.network, err, bindRemedy(err))
		}
		s.listener = listener
	}
	if s.endpoint == nil {
		_ = s.adviseLocked() // Endpoint reports it; serving needs no advertised address
	}
	return nil
}

// bindRemedy says what helps: somebody else holds the address, or it is none.
func bindRemedy(err error) string {
	if errors.Is(err, syscall.EADDRINUSE) {
		return "choose another address or stop what holds it"
	}
	return "want an address of this machine as host:port and a network such as tcp or unix"
}

// adviseLocked works out the URL to publish.
func (s *Server) adviseLocked() error {
	if s.options.endpoint != nil {
		s.endpoint = s.options.endpoint
		return nil
	}
	scheme := "grpc"
	if s.options.tls != nil {
		scheme = "grpcs"
	}
	bound := s.listener.Addr()
	if bound.Network() == "unix" {
		s.endpoint = &url.URL{Scheme: "unix", Path: bound.String()}
		return nil
	}
	host, port, err := net.SplitHostPort(bound.String())
	if err != nil { // an in-memory listener has a name
		s.endpoint = &url.URL{Scheme: scheme, Host: bound.String()}
		return nil //nolint:nilerr // err says that it is such a name
	}
	if s.options.listener == nil { // a name such as localhost is kept
		if host, _, err = net.SplitHostPort(s.options.address); err != nil {
			return fmt.Errorf("transport/grpc: Address %q is not host:port: %w", s.options.address, err)
		}
	}
	address, err := registry.Advertise(net.JoinHostPort(host, port), nil)
	if err != nil {
		return fmt.Errorf("transport/grpc: no endpoint to publish: %w; give Endpoint or an Address with a host", err)
	}
	s.endpoint = &url.URL{Scheme: scheme, Host: address}
	return nil
}

// unbindLocked frees what bindLocked took.
func (s *Server) unbindLocked() {
	if s.listener != nil {
		_ = s.listener.Close() // nothing was accepted on it
		s.listener = nil
	}
}

// gateListener is where connections are counted.
type gateListener struct {
	net.Listener
	server *Server
}

// Accept returns the next connection within the bound.
func (l *gateListener) Accept() (net.Conn, error) {
	l.server.onServing()
	limit, open := int64(l.server.options.maxConnections), &l.server.connections
	for {
		conn, err := l.Listener.Accept()
		if err != nil || limit == 0 {
			return conn, err
		}
		if open.Add(1) <= limit {
			return &countedConn{Conn: conn, left: sync.OnceFunc(func() { open.Add(-1) })}, nil
		}
		open.Add(-1)
		peer := new(materpc.Peer)
		if remote := conn.RemoteAddr(); remote != nil {
			peer.Address = remote.String()
		}
		_ = conn.Close() // it is over the bound; there is no one to tell
		l.server.emit(materpc.Event{Type: materpc.Refusal, Kind: materpc.Overlimit, Detail: "connections", Peer: peer})
	}
}

type countedConn struct {
	net.Conn
	left func()
}

// Close gives the connection's place back.
func (c *countedConn) Close() error {
	c.left()
	return c.Conn.Close()
}
