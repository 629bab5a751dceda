package grpc_test

import (
	"bytes"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"

	"github.com/materpc/materpc/internal/wire"
)

// rawServer speaks HTTP/2 by hand, so that a test decides every frame: what a
// real server, proxy or network does to a call at its worst moment.
type rawServer struct {
	listener net.Listener
	// script answers one request, once its headers (and, unless early is set,
	// its end) are here. It runs on a goroutine of its own.
	script func(*rawStream)
	early  bool
	// settings are what the server announces.
	settings []http2.Setting
	// onConn runs for each accepted connection before anything is read; false
	// leaves the connection unanswered.
	onConn func(net.Conn) bool
	// deaf is the ordinal of the request after which nothing is read any more.
	deaf int64

	requests atomic.Int64
	accepted atomic.Int64
	mu       sync.Mutex
	conns    map[*rawConn]struct{}
	closed   bool
	running  sync.WaitGroup
}

func startRaw(t testing.TB, listener net.Listener, script func(*rawStream)) *rawServer {
	t.Helper()
	s := &rawServer{listener: listener, script: script, conns: make(map[*rawConn]struct{})}
	s.start(t)
	return s
}

func (s *rawServer) start(t testing.TB) {
	if s.conns == nil {
		s.conns = make(map[*rawConn]struct{})
	}
	s.running.Go(func() {
		for {
			conn, err := s.listener.Accept()
			if err != nil {
				return
			}
			s.accepted.Add(1)
			c := &rawConn{server: s, conn: conn, framer: http2.NewFramer(conn, conn), bodies: make(map[uint32]*rawStream), hung: make(chan struct{})}
			c.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
			c.encoder = hpack.NewEncoder(&c.block)
			s.mu.Lock()
			if s.closed {
				s.mu.Unlock()
				_ = conn.Close()
				return
			}
			s.conns[c] = struct{}{}
			s.mu.Unlock()
			s.running.Go(c.serve)
		}
	})
	t.Cleanup(s.close)
}

func (s *rawServer) close() {
	s.mu.Lock()
	s.closed = true
	conns := make([]*rawConn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	s.mu.Unlock()
	_ = s.listener.Close()
	for _, c := range conns {
		c.close()
	}
	s.running.Wait()
}

// live are the connections that are open.
func (s *rawServer) live() []*rawConn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*rawConn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}

type rawConn struct {
	server *rawServer
	conn   net.Conn
	framer *http2.Framer
	bodies map[uint32]*rawStream
	last   atomic.Uint32
	hung   chan struct{} // closed by close and reset
	once   sync.Once

	mu      sync.Mutex // writes
	block   bytes.Buffer
	encoder *hpack.Encoder
}

func (c *rawConn) serve() {
	defer func() {
		c.server.mu.Lock()
		delete(c.server.conns, c)
		c.server.mu.Unlock()
		_ = c.conn.Close()
	}()
	if c.server.onConn != nil && !c.server.onConn(c.conn) {
		_, _ = io.Copy(io.Discard, c.conn)
		return
	}
	preface := make([]byte, len(http2.ClientPreface))
	if _, err := io.ReadFull(c.conn, preface); err != nil || string(preface) != http2.ClientPreface {
		return
	}
	if c.write(func() error { return c.framer.WriteSettings(c.server.settings...) }) != nil {
		return
	}
	for {
		f, err := c.framer.ReadFrame()
		if err != nil {
			return
		}
		switch f := f.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = c.write(c.framer.WriteSettingsAck)
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				data := f.Data
				_ = c.write(func() error { return c.framer.WritePing(true, data) })
			}
		case *http2.MetaHeadersFrame:
			st := &rawStream{conn: c, id: f.StreamID, header: make(map[string][]string), method: f.PseudoValue("path")}
			for _, field := range f.RegularFields() {
				st.header[field.Name] = append(st.header[field.Name], field.Value)
			}
			c.last.Store(f.StreamID)
			st.ordinal = c.server.requests.Add(1)
			if c.server.early || f.StreamEnded() {
				c.run(st)
			} else {
				c.bodies[f.StreamID] = st
			}
			if st.ordinal == c.server.deaf {
				<-c.hung
				return
			}
		case *http2.DataFrame:
			if n := f.Length; n > 0 {
				_ = c.write(func() error {
					return errors.Join(c.framer.WriteWindowUpdate(0, n), c.framer.WriteWindowUpdate(f.StreamID, n))
				})
			}
			if st := c.bodies[f.StreamID]; st != nil && f.StreamEnded() {
				delete(c.bodies, f.StreamID)
				c.run(st)
			}
		}
	}
}

func (c *rawConn) run(st *rawStream) {
	script := c.server.script
	c.server.running.Go(func() { script(st) })
}

func (c *rawConn) write(fn func() error) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return fn()
}

// close ends the connection without a word; reset does so with a TCP RST.
func (c *rawConn) close() {
	c.once.Do(func() { close(c.hung) })
	_ = c.conn.Close()
}

func (c *rawConn) reset() {
	if tcp, ok := c.conn.(*net.TCPConn); ok {
		_ = tcp.SetLinger(0)
	}
	c.close()
}

func (c *rawConn) goAway(last uint32) {
	_ = c.write(func() error { return c.framer.WriteGoAway(last, http2.ErrCodeNo, []byte("bye")) })
}

// rawStream is one request.
type rawStream struct {
	conn    *rawConn
	id      uint32
	ordinal int64 // among the server's requests, from 1
	method  string
	header  map[string][]string
}

// nonce is the caller's, "" without the header.
func (s *rawStream) nonce() string {
	values := s.header[wire.HeaderKey]
	if len(values) == 0 {
		return ""
	}
	h, _ := wire.ParseHeader(values[len(values)-1])
	return h.Nonce
}

func (s *rawStream) fields(end bool, pairs ...string) {
	_ = s.conn.write(func() error {
		s.conn.block.Reset()
		for i := 0; i < len(pairs); i += 2 {
			if err := s.conn.encoder.WriteField(hpack.HeaderField{Name: pairs[i], Value: pairs[i+1]}); err != nil {
				return err
			}
		}
		return s.conn.framer.WriteHeaders(http2.HeadersFrameParam{
			StreamID: s.id, BlockFragment: s.conn.block.Bytes(), EndStream: end, EndHeaders: true,
		})
	})
}

func statusPairs(code codes.Code, message string, pairs []string) []string {
	return append([]string{"grpc-status", strconv.Itoa(int(code)), "grpc-message", strings.ReplaceAll(message, "%", "%25")}, pairs...)
}

// headers sends the response header; trailers ends what headers began.
func (s *rawStream) headers(pairs ...string) {
	s.fields(false, append([]string{":status", "200", "content-type", "application/grpc"}, pairs...)...)
}

func (s *rawStream) trailers(code codes.Code, message string, pairs ...string) {
	s.fields(true, statusPairs(code, message, pairs)...)
}

// fail is a response of trailers only.
func (s *rawStream) fail(code codes.Code, message string, pairs ...string) {
	s.fields(true, append([]string{":status", "200", "content-type", "application/grpc"}, statusPairs(code, message, pairs)...)...)
}

// refuse answers as a gate does.
func (s *rawStream) refuse(reason, instance string, pairs ...string) {
	proof := wire.Proof{Nonce: s.nonce(), Reason: reason, Instance: instance}
	s.fail(codes.Unavailable, reason, append([]string{wire.RefusedKey, proof.Refusal()}, pairs...)...)
}

func (s *rawStream) message(m proto.Message) {
	body, err := proto.Marshal(m)
	if err != nil {
		return
	}
	data := binary.BigEndian.AppendUint32([]byte{0}, uint32(len(body)))
	data = append(data, body...)
	_ = s.conn.write(func() error { return s.conn.framer.WriteData(s.id, false, data) })
}

// reply is a whole successful response.
func (s *rawStream) reply(m proto.Message, pairs ...string) {
	s.headers()
	s.message(m)
	s.trailers(codes.OK, "", pairs...)
}

func (s *rawStream) rst(code http2.ErrCode) {
	_ = s.conn.write(func() error { return s.conn.framer.WriteRSTStream(s.id, code) })
}

// http503 is what a proxy without a backend says.
func (s *rawStream) http503() {
	s.fields(false, ":status", "503", "content-type", "text/html")
	_ = s.conn.write(func() error { return s.conn.framer.WriteData(s.id, true, []byte("<h1>no backend</h1>")) })
}

// detailsBin is a status as the trailer grpc-status-details-bin carries it.
func detailsBin(s *status.Status) string {
	body, err := proto.Marshal(s.Proto())
	if err != nil {
		return ""
	}
	return base64.RawStdEncoding.EncodeToString(body)
}
