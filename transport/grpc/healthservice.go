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
	told := health.Status(-1)
	tell := func(st health.Status) error {
		if st == told {
			return nil
		}
		told = st
		return stream.Send(&healthpb.HealthCheckResponse{Status: servingStatus(st)})
	}
	for {
		select {
		case st := <-latest:
			if err := tell(st); err != nil {
				return err
			}
		case <-stream.Context().Done():
			return status.FromContextError(stream.Context().Err()).Err()
		case <-h.ending: // the watcher hears what the drain has made of the service first
			st, _ := h.state.Check(in.GetService())
			_ = tell(st) // the stream ends either way
			return errDraining
		}
	}
}

func servingStatus(st health.Status) healthpb.HealthCheckResponse_ServingStatus {
	return healthpb.HealthCheckResponse_ServingStatus(st)
}
