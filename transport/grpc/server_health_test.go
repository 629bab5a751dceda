package grpc_test

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/health"
	"github.com/materpc/materpc/transport/grpc"
)

const (
	serving    = healthpb.HealthCheckResponse_SERVING
	notServing = healthpb.HealthCheckResponse_NOT_SERVING
	unknown    = healthpb.HealthCheckResponse_SERVICE_UNKNOWN
)

func TestCaseB60HealthFollowsReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		state := health.New()
		f := &serverFixture{t: t, greeter: &fakeGreeter{}, events: &eventLog{}, listener: newListener(), started: make(chan error, 1)}
		f.server = grpc.NewServer(grpc.Listener(f.listener), grpc.HealthState(state))
		hellov1.RegisterGreeterServer(f.server, f.greeter)
		go func() { f.started <- f.server.Start(health.NewManagedContext(t.Context())) }() // an app's after-start hook is still running
		<-f.server.Ready()
		defer f.close()
		client := healthpb.NewHealthClient(f.dial())
		check := func(step, name string, want healthpb.HealthCheckResponse_ServingStatus) {
			t.Helper()
			got, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: name})
			if err != nil || got.GetStatus() != want {
				t.Errorf("%s: Check(%q) = %v, %v; want %v", step, name, got.GetStatus(), err, want)
			}
		}
		check("start", "", notServing)
		check("start", "hello.v1.Greeter", notServing)
		state.SetPhase(health.Ready)
		check("ready", "", serving)
		check("ready", "hello.v1.Greeter", serving)

		if _, err := client.Check(t.Context(), &healthpb.HealthCheckRequest{Service: "nope"}); status.Code(err) != codes.NotFound {
			t.Errorf("Check(nope) = %v, want NotFound", err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		watch, err := client.Watch(ctx, &healthpb.HealthCheckRequest{Service: "nope"})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := watch.Recv(); err != nil || first.GetStatus() != unknown {
			t.Errorf("Watch(nope): %v, %v; want SERVICE_UNKNOWN first", first, err)
		}
		time.Sleep(time.Minute)
		state.Register("nope")
		if second, err := watch.Recv(); err != nil || second.GetStatus() != serving {
			t.Errorf("Watch(nope) a minute later: %v, %v; want SERVING: the stream stays open", second, err)
		}
		cancel()

		state.SetPhase(health.Draining)
		check("drain", "", notServing)
		state.Set("", health.Serving)
		check("drain, set again", "", notServing)
		check("drain", "hello.v1.Greeter", notServing)
	})
}

func TestInvariant07HealthServiceAgreesWithItsState(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		f.server.Health().Set("hello.v1.Greeter", health.NotServing)
		out, err := healthpb.NewHealthClient(f.dial()).List(t.Context(), &healthpb.HealthListRequest{})
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]healthpb.HealthCheckResponse_ServingStatus{}
		for name, s := range out.GetStatuses() {
			got[name] = s.GetStatus()
		}
		want := map[string]healthpb.HealthCheckResponse_ServingStatus{
			"": serving, "hello.v1.Greeter": notServing, "grpc.health.v1.Health": serving,
			"grpc.reflection.v1.ServerReflection": serving, "grpc.reflection.v1alpha.ServerReflection": serving,
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("List (-want +got):\n%s", diff)
		}
	})
}

func TestReflectionListsServicesInBothVersions(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		stream, err := reflectionpb.NewServerReflectionClient(f.dial()).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
			t.Fatal(err)
		}
		reply, err := stream.Recv()
		if err != nil {
			t.Fatal(err)
		}
		names := map[string]bool{}
		for _, s := range reply.GetListServicesResponse().GetService() {
			names[s.GetName()] = true
		}
		if !names["hello.v1.Greeter"] || !names["grpc.health.v1.Health"] {
			t.Errorf("v1 lists %v", names)
		}
		alpha, err := reflectionalpha.NewServerReflectionClient(f.dial()).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if err := alpha.Send(&reflectionalpha.ServerReflectionRequest{MessageRequest: &reflectionalpha.ServerReflectionRequest_ListServices{}}); err != nil { //nolint:staticcheck // as above
			t.Fatal(err)
		}
		if old, err := alpha.Recv(); err != nil || len(old.GetListServicesResponse().GetService()) != len(names) { //nolint:staticcheck // as above
			t.Errorf("v1alpha lists %v, %v", old, err)
		}
	})
}

func TestBuiltInServicesCanBeLeftOut(t *testing.T) {
	s := grpc.NewServer(grpc.CustomHealth(), grpc.DisableReflection())
	if got := s.GetServiceInfo(); len(got) != 0 {
		t.Errorf("services %v, want none", got)
	}
}
