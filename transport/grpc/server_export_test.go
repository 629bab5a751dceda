package grpc

import stdgrpc "google.golang.org/grpc"

// ServerLayerNames shows the server's chain to tests.
func ServerLayerNames() []string { return serverLayerNames() }

// UnaryHandlerOf is the handler that grpc-go calls for a registered method.
func UnaryHandlerOf(s *Server, fullMethod string) stdgrpc.MethodHandler {
	return s.methods[fullMethod].serveUnary
}

// InterceptorOf is what grpc-go passes to handlers when no other interceptor
// is there.
func InterceptorOf(s *Server) stdgrpc.UnaryServerInterceptor { return s.interceptUnary }

// HealthServiceOf is what a server registers for grpc.health.v1.
func HealthServiceOf(s *Server) any { return &healthService{state: s.health, ending: s.ending} }
