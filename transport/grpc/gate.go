package grpc

import (
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	kmiddleware "github.com/go-kratos/kratos/v2/middleware"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc"
	"github.com/materpc/materpc/internal/wire"
)

// serverMethod is a registered method behind the gate.
type serverMethod struct {
	server     *Server
	fullMethod string // empty for unknown methods: the call knows
	shape      materpc.Shape
	builtin    bool // health, reflection, channelz: passes the gate, holds no drain up
	unary      stdgrpc.MethodHandler
	stream     stdgrpc.StreamHandler
	chain      atomic.Pointer[kmiddleware.Handler] // the middlewares, nil without any
}

// RegisterService registers a service behind the gate. It copies the
// description, which is a package variable of generated code. A service that
// is registered twice, with the wrong type or without an implementation is a fault
// of [Server.Start]. One that comes after Start is not served: a warning says so,
// see [Slog].
func (s *Server) RegisterService(sd *stdgrpc.ServiceDesc, impl any) {
	if err := s.register(sd, impl); err != nil {
		s.warn(err.Error()) // Start may be over: then nobody else says it
	}
}

func (s *Server) register(sd *stdgrpc.ServiceDesc, impl any) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.registrationFault(sd, impl); err != nil {
		s.faults = append(s.faults, err)
		return err
	}
	gated := *sd
	gated.Methods = make([]stdgrpc.MethodDesc, len(sd.Methods))
	for i, d := range sd.Methods {
		m := s.newMethod(sd.ServiceName, d.MethodName, materpc.Unary)
		m.unary = d.Handler
		gated.Methods[i] = stdgrpc.MethodDesc{MethodName: d.MethodName, Handler: m.serveUnary}
		s.adopt(m)
	}
	gated.Streams = make([]stdgrpc.StreamDesc, len(sd.Streams))
	for i, d := range sd.Streams {
		m := s.newMethod(sd.ServiceName, d.StreamName, materpc.ShapeOf(d.ClientStreams, d.ServerStreams))
		m.stream = d.Handler
		if _, ours := impl.(*healthService); m.builtin && !ours {
			m.stream = s.untilDrain(d.Handler)
		}
		d.Handler = m.serveStream
		gated.Streams[i] = d
		s.adopt(m)
	}
	s.services[sd.ServiceName] = struct{}{}
	s.health.Register(sd.ServiceName)
	s.Server.RegisterService(&gated, impl)
	return nil
}

// registrationFault finds what grpc-go would end the process for.
func (s *Server) registrationFault(sd *stdgrpc.ServiceDesc, impl any) error {
	if _, twice := s.services[sd.ServiceName]; twice {
		return fmt.Errorf("transport/grpc: service %q is registered twice; leave one out", sd.ServiceName)
	}
	if s.started || s.stop != nil {
		return fmt.Errorf("transport/grpc: service %q is registered after Start; register it before", sd.ServiceName)
	}
	if sd.HandlerType == nil {
		return nil
	}
	want := reflect.TypeOf(sd.HandlerType).Elem()
	if impl == nil {
		if want.NumMethod() == 0 {
			return nil
		}
		return fmt.Errorf("transport/grpc: service %q: the implementation is nil; want a %v", sd.ServiceName, want)
	}
	if !reflect.TypeOf(impl).Implements(want) {
		return fmt.Errorf("transport/grpc: service %q: %T does not implement %v", sd.ServiceName, impl, want)
	}
	return nil
}

func (s *Server) newMethod(service, name string, shape materpc.Shape) *serverMethod {
	return &serverMethod{server: s, fullMethod: "/" + service + "/" + name, shape: shape, builtin: builtinService(service)}
}

func (s *Server) adopt(m *serverMethod) {
	m.compile()
	s.methods[m.fullMethod] = m
}

// builtinService tells services of the transport from those of the
// application, also where the application brings its own implementation.
func builtinService(service string) bool {
	return service == "grpc.health.v1.Health" || strings.HasPrefix(service, "grpc.reflection.") ||
		strings.HasPrefix(service, "grpc.channelz.")
}

// unknownMethod stands for all methods that nobody registered.
func (s *Server) unknownMethod() *serverMethod {
	m := &serverMethod{server: s, shape: materpc.BidiStream, stream: s.options.unknown}
	if m.stream == nil {
		m.stream = func(_ any, ss stdgrpc.ServerStream) error {
			c := callOf(ss.Context())
			if c == nil {
				return unimplemented("")
			}
			s.emit(materpc.Event{Type: materpc.UnknownMethod, Info: &c.RPCInfo, Detail: c.FullMethod()})
			return unimplemented(c.FullMethod())
		}
	}
	m.compile()
	return m
}

// admit asks the drain mark, then the admissions. The call is in the in-flight
// list by now.
func (s *Server) admit(c *serverCall) (refusal *Refusal) {
	if mark := s.draining.Load(); mark != nil && mark.refuses(c) {
		return &Refusal{Reason: wire.Draining, Err: errDraining}
	}
	if len(s.options.admissions) == 0 {
		return nil
	}
	defer func() {
		if p := recover(); p != nil {
			s.panicked(c, p)
			refusal = &Refusal{Err: errAdmission}
		}
	}()
	for _, admission := range s.options.admissions {
		permit, refused := admission.Admit(&c.RPCInfo)
		if refused != nil {
			return refused
		}
		c.permits.add(permit)
	}
	return nil
}

// refuse answers a call that the gate turned away, with the proof that nothing
// ran when the caller can read one.
func (s *Server) refuse(c *serverCall, refusal *Refusal) error {
	err := refusal.err()
	s.emit(materpc.Event{Type: materpc.Refusal, Info: &c.RPCInfo, Kind: materpc.KindOf(err), Err: err, Detail: refusal.Reason})
	var trailer metadata.MD
	if header, ok := c.Header(); ok && refusal.Reason != "" {
		proof := wire.Proof{Nonce: header.Nonce, Reason: refusal.Reason, Instance: s.InstanceID()}
		trailer = metadata.Pairs(wire.RefusedKey, proof.Refusal())
	}
	if refusal.Pushback != 0 {
		trailer = metadata.Join(trailer, metadata.Pairs("grpc-retry-pushback-ms", pushback(refusal.Pushback)))
	}
	c.setTrailer(trailer)
	return err
}

// pushback is in whole milliseconds, rounded up; -1 forbids retries.
func pushback(d time.Duration) string {
	if d < 0 {
		return "-1"
	}
	return strconv.FormatInt((d-1).Milliseconds()+1, 10)
}

// drainMark says since when the server drains.
type drainMark struct{ since time.Time }

// secondGOAWAY is when grpc-go has sent the last GOAWAY to every connection,
// acknowledged or not (5 s), and what was on its way has come.
const secondGOAWAY = 6 * time.Second

// refuses says which calls a drain turns away. Built-in unary calls are
// answered as long as others are: a probe wants this instance's answer. A
// client or bidi stream cannot move once its client accepted a message, which
// nobody here can know, so it is served like the call of a plain client.
func (m *drainMark) refuses(c *serverCall) bool {
	if c.Start().Sub(m.since) > secondGOAWAY {
		return true
	}
	if shape := c.Shape(); c.method.builtin || shape == materpc.ClientStream || shape == materpc.BidiStream {
		return false
	}
	_, moves := c.Header()
	return moves
}
