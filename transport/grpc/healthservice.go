package grpc

import (
	"context"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/health"
)

// healthService answers grpc.health.v1 from the server's health state.
type healthService struct {
	healthpb.UnimplementedHealthServer
	state  *health.State
	ending <-chan struct{}
}

func registerHealth(s *Server) {
	healthpb.RegisterHealthServer(s, &healthService{state: s.health, ending: s.ending})
}

// Check answers for one name; an unknown one is NotFound.
func (h *healthService) Check(_ context.Context, in *healthpb.HealthCheckRequest) (*healthpb.HealthCheckResponse, error) {
	st, known := h.state.Check(in.GetService())
	if !known {
		return nil, status.Errorf(codes.NotFound, "unknown service %q", in.GetService())
	}
	return &healthpb.HealthCheckResponse{Status: servingStatus(st)}, nil
}

// List answers for all names.
func (h *healthService) List(context.Context, *healthpb.HealthListRequest) (*healthpb.HealthListResponse, error) {
	all := h.state.List()
	out := &healthpb.HealthListResponse{Statuses: make(map[string]*healthpb.HealthCheckResponse, len(all))}
	for name, st := range all {
		out.Statuses[name] = &healthpb.HealthCheckResponse{Status: servingStatus(st)}
	}
	return out, nil
}

// Watch sends each change until the caller leaves or the server drains. A slow
// caller gets the newest status, not all of them.
func (h *healthService) Watch(in *healthpb.HealthCheckRequest, stream stdgrpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	latest := make(chan health.Status, 1)
	cancel := h.state.Watch(in.GetService(), func(st health.Status) {
		select { // calls are serialised, so there is room after this
		case <-latest:
		default:
		}
		latest <- st
	})
	defer cancel()
	for {
		select {
		case st := <-latest:
			if err := stream.Send(&healthpb.HealthCheckResponse{Status: servingStatus(st)}); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-h.ending:
			return h.sayGoodbye(in.GetService(), stream)
		}
	}
}

// sayGoodbye tells a watcher what the drain has made of the service before the
// stream ends.
func (h *healthService) sayGoodbye(service string, stream stdgrpc.ServerStreamingServer[healthpb.HealthCheckResponse]) error {
	if st, known := h.state.Check(service); known {
		if err := stream.Send(&healthpb.HealthCheckResponse{Status: servingStatus(st)}); err != nil {
			return err
		}
	}
	return errDraining
}

func servingStatus(st health.Status) healthpb.HealthCheckResponse_ServingStatus {
	return healthpb.HealthCheckResponse_ServingStatus(st)
}
