package main

import (
	"context"
	"net"
	"sync"
	"time"
)

// distance puts a network between the caller and its servers: what a connection
// receives arrives a round trip later. On plain loopback a server's GOAWAY is
// there within 0.1 ms, and hardly a caller ever meets one that leaves; in a
// real network the calls that are already on their way do.
type distance time.Duration

// dial is a dialer for gRPC.
func (d distance) dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil || d <= 0 {
		return conn, err
	}
	c := &distantConn{Conn: conn, delay: time.Duration(d), arrivals: make(chan arrival, 256), closed: make(chan struct{})}
	go c.receive() // ends with the connection, which its client closes
	return c, nil
}

// distantConn delays what it reads, without limiting how much is under way but
// by its channel.
type distantConn struct {
	net.Conn
	delay    time.Duration
	arrivals chan arrival
	closed   chan struct{}
	once     sync.Once

	rest []byte // of the last arrival; Read's alone, as is err
	err  error
}

// arrival is one read of the connection below.
type arrival struct {
	data []byte
	err  error
	due  time.Time
}

func (c *distantConn) receive() {
	for {
		buffer := make([]byte, 4<<10)
		n, err := c.Conn.Read(buffer)
		select {
		case c.arrivals <- arrival{data: buffer[:n], err: err, due: time.Now().Add(c.delay)}:
		case <-c.closed:
			return
		}
		if err != nil {
			return
		}
	}
}

// Read implements net.Conn.
func (c *distantConn) Read(p []byte) (int, error) {
	for len(c.rest) == 0 {
		if c.err != nil {
			return 0, c.err
		}
		select {
		case next := <-c.arrivals:
			if !c.wait(time.Until(next.due)) {
				return 0, net.ErrClosed
			}
			c.rest, c.err = next.data, next.err
		case <-c.closed:
			return 0, net.ErrClosed
		}
	}
	n := copy(p, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

// wait reports whether the connection is still open when d is over.
func (c *distantConn) wait(d time.Duration) bool {
	if d <= 0 {
		return true
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-c.closed:
		return false
	}
}

// Close implements net.Conn.
func (c *distantConn) Close() error {
	c.once.Do(func() { close(c.closed) })
	return c.Conn.Close()
}
