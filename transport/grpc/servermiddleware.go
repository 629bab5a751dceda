package grpc

import (
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"

	klog "github.com/go-kratos/kratos/v2/log"
	kmiddleware "github.com/go-kratos/kratos/v2/middleware"
)

// middlewareSet keeps Kratos's middlewares and selects them by operation.
type middlewareSet struct {
	always   []kmiddleware.Middleware
	selected map[string][]kmiddleware.Middleware // a trailing * marks a prefix
}

func (m *middlewareSet) use(list []kmiddleware.Middleware) { m.always = append(m.always, list...) }

func (m *middlewareSet) add(selector string, list []kmiddleware.Middleware) {
	if m.selected == nil {
		m.selected = make(map[string][]kmiddleware.Middleware)
	}
	m.selected[selector] = append(m.selected[selector], list...)
}

func (m *middlewareSet) match(operation string) []kmiddleware.Middleware {
	list := m.always[:len(m.always):len(m.always)]
	if exact, ok := m.selected[operation]; ok {
		return append(list, exact...)
	}
	longest := ""
	for selector := range m.selected {
		prefix, isPrefix := strings.CutSuffix(selector, "*")
		if isPrefix && strings.HasPrefix(operation, prefix) && len(selector) > len(longest) {
			longest = selector
		}
	}
	return append(list, m.selected[longest]...)
}

// compile builds the method's middlewares once, not per call.
func (m *serverMethod) compile() {
	set, last := &m.server.options.middleware, kmiddleware.Handler(callUnaryHandler)
	if m.unary == nil {
		set, last = &m.server.options.streamMiddleware, callStreamHandler
	}
	list := set.match(m.fullMethod)
	if len(list) == 0 {
		m.chain.Store(nil)
		return
	}
	chain := kmiddleware.Chain(list...)(last)
	m.chain.Store(&chain)
}

// warnStreams names streams that the unary middlewares do not cover: a team
// that adds authentication as Middleware would leave them open.
func (s *Server) warnStreams() {
	if len(s.options.middleware.always)+len(s.options.middleware.selected) == 0 || len(s.options.streamMiddleware.always) > 0 {
		return
	}
	var bare []string
	for name, m := range s.methods {
		if m.unary == nil && !m.builtin {
			bare = append(bare, name)
		}
	}
	if len(bare) > 0 {
		slices.Sort(bare)
		s.warn("transport/grpc: Middleware does not run on streams and there is no StreamMiddleware", "methods", bare)
	}
}

// warnSelectors names selectors of Use that choose no method: what was meant to
// check a caller may check nobody.
func (s *Server) warnSelectors() {
	s.mu.Lock()
	defer s.mu.Unlock()
	var idle []string
	for selector := range s.options.middleware.selected {
		prefix, isPrefix := strings.CutSuffix(selector, "*")
		used := false
		for name, m := range s.methods {
			used = used || m.unary != nil && (name == selector || isPrefix && strings.HasPrefix(name, prefix))
		}
		if !used {
			idle = append(idle, selector)
		}
	}
	if len(idle) > 0 {
		slices.Sort(idle)
		s.warn("transport/grpc: Use has selectors that name no unary method; write /package.Service/Method, /package.Service/* or /*", "selectors", idle)
	}
}

// warn tells the loggers that were given, else the process's.
func (s *Server) warn(message string, args ...any) {
	logger := s.options.slog
	if logger == nil && s.options.klog == nil {
		logger = slog.Default()
	}
	if logger != nil {
		guard(func() {
			logger.WarnContext(context.Background(), "grpc server", append([]any{"warning", message}, args...)...)
		})
	}
	if s.options.klog != nil {
		guard(func() { _ = s.options.klog.Log(klog.LevelWarn, append([]any{"msg", message}, args...)...) })
	}
}

var errLostContext = errors.New("transport/grpc: a middleware passed on a ctx that does not derive from the one it was given")
