package grpc

import (
	"net"
	"sync"
	"sync/atomic"
	"time"

	kselector "github.com/go-kratos/kratos/v2/selector"
	"google.golang.org/grpc/balancer"
	"google.golang.org/grpc/resolver"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/selector"
)

// instance is one address with one instance id in a client's fleet: its node
// for the strategy, its SubConn, and where the connection stands. A process
// that restarts under a new id is a new instance.
type instance struct {
	fleet   *fleet
	key     instanceID
	dial    resolver.Address
	rank    uint64 // order in which this client connects to instances
	seen    uint64 // the last list that named it, under fleet.mu
	node    *selector.Node
	kratos  kselector.Node
	peer    materpc.Peer
	subConn balancer.SubConn
	sockets sockets

	connection atomic.Uint32 // counts connections, so that a late proof reaches none but its own
	gated      atomic.Bool   // the peer has our gate
	state      atomic.Uint32 // instanceState; written under fleet.mu
	draining   bool          // under fleet.mu
	asked      bool          // a user's filter has woken it, under fleet.mu
	askedAt    int64         // when, on the client's clock
	cause      error         // last connection error, under fleet.mu
	grace      *time.Timer   // once discovery has withdrawn it, under fleet.mu
}

// instanceID tells instances apart.
type instanceID struct{ address, id string }

type instanceState = uint32

const (
	// dormant: outside the subset, no SubConn.
	dormant instanceState = iota
	// waiting: connecting for the first time since it was READY or created.
	waiting
	// ready: connected and not draining.
	ready
	// failing: could not be reached, and stays so until READY, also while it
	// connects again; or it drains.
	failing
	// left: discovery has withdrawn it, or the client is closed.
	left
)

// drain takes the instance out of the pick set until its connection changes.
// connection is the one that proved it: a proof that arrives late says nothing
// about the next. It reports whether this changed anything.
func (in *instance) drain(connection uint32) bool {
	f := in.fleet
	f.mu.Lock()
	defer f.mu.Unlock()
	if in.draining || in.connection.Load() != connection || in.state.Load() != ready {
		return false
	}
	in.draining = true
	f.move(in, failing)
	return true
}

// sockets are the open connections of an instance: grpc-go lets the calls of a
// SubConn that was shut down run without end, so the drain grace closes them
// here.
type sockets struct {
	mu    sync.Mutex
	open  map[*socket]struct{}
	empty func() // called once the last one has closed
}

// socket is a connection that knows whose it is.
type socket struct {
	net.Conn
	set  *sockets
	once sync.Once
}

func (s *sockets) add(conn net.Conn) net.Conn {
	c := &socket{Conn: conn, set: s}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.open == nil {
		s.open = make(map[*socket]struct{})
	}
	s.open[c] = struct{}{}
	return c
}

// Close implements net.Conn.
func (c *socket) Close() error {
	c.once.Do(func() { c.set.remove(c) })
	return c.Conn.Close()
}

func (s *sockets) remove(c *socket) {
	s.mu.Lock()
	delete(s.open, c)
	empty := s.empty
	if len(s.open) > 0 {
		empty = nil
	}
	s.mu.Unlock()
	if empty != nil {
		empty()
	}
}

// whenEmpty calls fn once no connection is open, at once if none is.
func (s *sockets) whenEmpty(fn func()) {
	s.mu.Lock()
	s.empty = fn
	none := len(s.open) == 0
	s.mu.Unlock()
	if none {
		fn()
	}
}

// cut closes what is open.
func (s *sockets) cut() {
	s.mu.Lock()
	open := make([]*socket, 0, len(s.open))
	for c := range s.open {
		open = append(open, c)
	}
	s.mu.Unlock()
	for _, c := range open {
		_ = c.Conn.Close() // grpc-go's reader sees it and closes the socket itself
	}
}
