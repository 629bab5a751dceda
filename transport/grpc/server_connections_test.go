package grpc_test

import (
	"net"
	"sync"
	"testing"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/transport/grpc"
)

// scriptedListener accepts what a test hands it.
type scriptedListener struct {
	conns  chan net.Conn
	closed chan struct{}
	once   sync.Once
}

func newScriptedListener() *scriptedListener {
	return &scriptedListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *scriptedListener) Accept() (net.Conn, error) {
	select {
	case conn := <-l.conns:
		return conn, nil
	case <-l.closed:
		return nil, net.ErrClosed
	}
}

func (l *scriptedListener) Close() error   { l.once.Do(func() { close(l.closed) }); return nil }
func (l *scriptedListener) Addr() net.Addr { return &net.UnixAddr{Name: "scripted", Net: "scripted"} }

// namelessConn has no address, as connections of in-memory listeners may.
type namelessConn struct{ net.Conn }

func (namelessConn) RemoteAddr() net.Addr { return nil }

// TestMaxConnectionsBoundsTheServer: two listeners are no two bounds, and a
// connection without an address is refused like any.
func TestMaxConnectionsBoundsTheServer(t *testing.T) {
	t.Parallel()
	log := &eventLog{}
	server := grpc.NewServer(grpc.MaxConnections(1), grpc.Events(log.add))
	first, second := newScriptedListener(), newScriptedListener()
	var served sync.WaitGroup
	for _, l := range []net.Listener{first, second} {
		served.Go(func() { _ = server.Serve(l) })
	}
	kept, peer := net.Pipe()
	defer func() { _ = peer.Close() }()
	first.conns <- kept
	extra, refused := net.Pipe()
	defer func() { _ = refused.Close() }()
	second.conns <- namelessConn{extra}
	await(t, "the refusal", func() bool { return len(log.of(materpc.Refusal)) == 1 })
	_ = kept.Close()
	_ = server.Stop(t.Context())
	served.Wait()
}
