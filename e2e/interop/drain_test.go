package interop_test

import (
	"context"
	"errors"
	"os/exec"
	"strings"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc/e2e/interop"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
)

var probeTool = interop.Tool{Package: "github.com/grpc-ecosystem/grpc-health-probe", Version: "v0.4.63"}

// Steps of app's stop, see app.Events.
const (
	stepDeregister = "deregister"
	stepWindow     = "propagation window"
	stepServers    = "stop servers"
)

// probeUnhealthy is grpc_health_probe's exit code for any status but SERVING.
const probeUnhealthy = 4

// probe runs grpc_health_probe and returns its exit code and output.
func probe(t *testing.T, addr, service string) (code int, output string) {
	t.Helper()
	program, err := probeTool.Path(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), program, "-addr", addr, "-service", service,
		"-connect-timeout", "10s", "-rpc-timeout", "10s").CombinedOutput()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return exit.ExitCode(), string(out)
	}
	if err != nil {
		t.Fatal(err)
	}
	return 0, string(out)
}

// greetFresh makes one call on a new connection of a plain client.
func greetFresh(t *testing.T, addr string) error {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), stepBound)
	defer cancel()
	_, err := hellov1.NewGreeterClient(plainClient(t, nil, addr)).SayHello(ctx, &hellov1.SayHelloRequest{Name: "Ann"})
	return err
}

// TestProbeAndFreshClientInDrain: during the propagation window probes are
// told to turn away, and whoever comes all the same is served.
func TestProbeAndFreshClientInDrain(t *testing.T) {
	if _, err := probeTool.Path(t.Context()); err != nil { // not within the window
		t.Fatal(err)
	}
	g := startGreeter(t, 3*time.Second, 0)
	for _, service := range []string{"", "hello.v1.Greeter"} {
		if code, output := probe(t, g.addr, service); code != 0 || !strings.Contains(output, "status: SERVING") {
			t.Errorf("probe of %q before the drain: exit code %d, %s", service, code, output)
		}
	}
	stopped := g.stop(t)
	g.await(t, stepWindow)
	for _, service := range []string{"", "hello.v1.Greeter"} {
		if code, output := probe(t, g.addr, service); code != probeUnhealthy || !strings.Contains(output, `"NOT_SERVING"`) {
			t.Errorf("probe of %q in the drain: exit code %d, %s", service, code, output)
		}
	}
	if err := greetFresh(t, g.addr); err != nil {
		t.Errorf("a fresh client in the propagation window: %v", err)
	}
	if g.hasBegun(stepServers) {
		t.Error("the window was over before the test had looked: the machine is too slow for 3 s")
	}
	<-stopped
}

// TestDeregistrationMovesWindow: the window opens when the deregistration has
// finished, so one that takes 700 ms moves the window by 700 ms, for a fresh
// plain client as well.
func TestDeregistrationMovesWindow(t *testing.T) {
	const window, deregistration, slack = 500 * time.Millisecond, 700 * time.Millisecond, 300 * time.Millisecond
	g := startGreeter(t, window, deregistration)
	started := time.Now()
	stopped := g.stop(t)

	g.await(t, stepDeregister)
	if err := greetFresh(t, g.addr); err != nil || g.hasBegun(stepWindow) {
		t.Errorf("during the deregistration: %v, window open: %v", err, g.hasBegun(stepWindow))
	}
	g.await(t, stepWindow)
	if opened := time.Since(started); opened < deregistration || opened > deregistration+slack {
		t.Errorf("the window opened %v after the stop began, want %v", opened, deregistration)
	}
	if err := greetFresh(t, g.addr); err != nil {
		t.Errorf("in the window: %v", err)
	}
	g.await(t, stepServers)
	if closed := time.Since(started); closed < deregistration+window || closed > deregistration+window+2*slack {
		t.Errorf("the window closed %v after the stop began, want %v", closed, deregistration+window)
	}
	<-stopped
	if took := g.stepTook(stepWindow); took < window || took > window+slack {
		t.Errorf("the window took %v, want %v", took, window)
	}
}

// TestHealthWatchDoesNotHoldStop: with an open Watch and no call, Stop takes
// the window plus less than 200 ms.
func TestHealthWatchDoesNotHoldStop(t *testing.T) {
	const window, more = 500 * time.Millisecond, 200 * time.Millisecond
	g := startGreeter(t, window, 0)
	watch, err := healthpb.NewHealthClient(plainClient(t, nil, g.addr)).Watch(t.Context(), &healthpb.HealthCheckRequest{})
	if err != nil {
		t.Fatal(err)
	}
	expect := func(want healthpb.HealthCheckResponse_ServingStatus) {
		t.Helper()
		if got, err := watch.Recv(); err != nil || got.GetStatus() != want {
			t.Fatalf("watched %v, %v, want %v", got, err, want)
		}
	}
	expect(healthpb.HealthCheckResponse_SERVING)
	stopped := g.stop(t)
	expect(healthpb.HealthCheckResponse_NOT_SERVING)
	for {
		got, err := watch.Recv()
		if status.Code(err) == codes.Unavailable {
			break
		}
		if err != nil || got.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Fatalf("watched %v, %v, want the end", got, err)
		}
	}
	if took := <-stopped; took < window || took > window+more {
		t.Errorf("Stop took %v, want %v and less than %v more", took, window, more)
	} else {
		t.Logf("Stop took %v with a window of %v", took, window)
	}
}
