package grpc_test

import (
	"context"
	"errors"
	"io"
	"runtime"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	"google.golang.org/grpc/metadata"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionalpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/health"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// sleepy answers after d.
func sleepy(d time.Duration) func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
	return func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
		timer := time.NewTimer(d)
		defer timer.Stop()
		select {
		case <-timer.C:
			return &hellov1.SayHelloResponse{}, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// openChat opens a bidi stream that has exchanged one message and then idles.
func openChat(t *testing.T, ctx context.Context, client hellov1.GreeterClient) stdgrpc.BidiStreamingClient[hellov1.ChatRequest, hellov1.ChatResponse] {
	t.Helper()
	chat, err := client.Chat(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := chat.Send(&hellov1.ChatRequest{Name: "x"}); err != nil {
		t.Fatal(err)
	}
	if _, err := chat.Recv(); err != nil {
		t.Fatal(err)
	}
	return chat
}

func TestCaseB53StopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{hello: sleepy(100 * time.Millisecond)})
		defer f.close()
		client := f.client()
		chat := openChat(t, governed(t.Context(), "n1"), client)
		unary := make(chan error, 1)
		go func() {
			_, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{})
			unary <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 300*time.Millisecond)
		defer cancel()
		took, err := f.stop(ctx)
		if err != nil || took < 100*time.Millisecond || took > 500*time.Millisecond {
			t.Errorf("Stop took %v, %v; want 100 to 500 ms", took, err)
		}
		if err := <-unary; err != nil {
			t.Errorf("unary call: %v, want OK", err)
		}
		if _, err := chat.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("stream ends with %v, want Unavailable", err)
		}
		if got := chat.Trailer().Get(wire.AbortedKey); len(got) != 1 || got[0] != "n1" {
			t.Errorf("abort trailer %q, want the caller's nonce", got)
		}
		if aborted := f.events.of(materpc.HandlerAborted); len(aborted) != 1 || aborted[0].Detail != hellov1.Greeter_Chat_FullMethodName {
			t.Errorf("abort events %+v", aborted)
		}
		finished := f.events.of(materpc.RPCFinish)
		if last := finished[len(finished)-1]; last.Kind != materpc.ServerDraining {
			t.Errorf("the aborted call finished as %v, want ServerDraining", last.Kind)
		}
	})
}

func TestStopEndsBuiltInStreamsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		watch, err := healthpb.NewHealthClient(f.dial()).Watch(t.Context(), &healthpb.HealthCheckRequest{})
		if err != nil {
			t.Fatal(err)
		}
		if first, err := watch.Recv(); err != nil || first.GetStatus() != healthpb.HealthCheckResponse_SERVING {
			t.Fatalf("first status %v, %v", first, err)
		}
		v1, err := reflectionpb.NewServerReflectionClient(f.dial()).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		alpha, err := reflectionalpha.NewServerReflectionClient(f.dial()).ServerReflectionInfo(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		took, err := f.stop(t.Context())
		if err != nil || took >= 200*time.Millisecond {
			t.Errorf("Stop with open built-in streams took %v, %v; want less than 200 ms", took, err)
		}
		if second, err := watch.Recv(); err != nil || second.GetStatus() != healthpb.HealthCheckResponse_NOT_SERVING {
			t.Errorf("second status %v, %v; want NOT_SERVING before the end", second, err)
		}
		if _, err := watch.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("Watch ends with %v, want Unavailable", err)
		}
		if _, err := v1.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("reflection v1 ends with %v, want Unavailable", err)
		}
		if _, err := alpha.Recv(); status.Code(err) != codes.Unavailable {
			t.Errorf("reflection v1alpha ends with %v, want Unavailable", err)
		}
	})
}

func TestInvariant08ExitWaitBelongsToBusinessHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{hello: sleepy(3 * time.Second)})
		defer f.close()
		client := f.client()
		reply := make(chan error, 1)
		go func() {
			_, err := client.SayHello(governed(t.Context(), "n1"), &hellov1.SayHelloRequest{})
			reply <- err
		}()
		synctest.Wait()
		took, err := f.stop(t.Context())
		if err != nil || took < 3*time.Second || took > 3100*time.Millisecond {
			t.Errorf("Stop took %v, %v; want the 3 s of the handler and no more", took, err)
		}
		if err := <-reply; err != nil {
			t.Errorf("the call: %v, want OK", err)
		}
	})
}

// TestDrainOfManyCallsIsLinear lets 10,000 calls end one by one during a drain,
// which looks at each change whether any is left. What it allocates tells how
// much it looks at: a list of the calls each time is 1 GB in all.
func TestDrainOfManyCallsIsLinear(t *testing.T) {
	const calls, limit = 10_000, 32 << 20
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		defer f.close()
		handler := grpc.UnaryHandlerOf(f.server, hellov1.Greeter_SayHello_FullMethodName)
		decode := func(any) error { return nil }
		var group sync.WaitGroup
		for i := range calls {
			greeter := &fakeGreeter{hello: sleepy(time.Second + time.Duration(i)*time.Microsecond)}
			group.Go(func() {
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel() // as grpc-go once the status is out
				if _, err := handler(greeter, ctx, decode, nil); err != nil {
					t.Error(err)
				}
			})
		}
		synctest.Wait()
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		took, err := f.stop(t.Context())
		runtime.ReadMemStats(&after)
		group.Wait()
		if err != nil || took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("Stop took %v, %v, want the second of the calls", took, err)
		}
		if got := after.TotalAlloc - before.TotalAlloc; got > limit {
			t.Errorf("the drain of %d calls allocated %d MB, want at most %d", calls, got>>20, limit>>20)
		}
	})
}

func TestStopWaitsForAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		greeter := &fakeGreeter{}
		f := startServer(t, greeter)
		defer f.close()
		ran := false
		greeter.hello = func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			return &hellov1.SayHelloResponse{}, materpc.After(ctx, func(context.Context) {
				time.Sleep(2 * time.Second)
				ran = true
			})
		}
		if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Fatal(err)
		}
		took, err := f.stop(t.Context())
		if err != nil || !ran || took < 2*time.Second || took > 2100*time.Millisecond {
			t.Errorf("Stop took %v, %v, After ran: %v; want 2 s", took, err, ran)
		}
	})
}

func TestDrainRefusesMoversAndServesOthers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{hello: sleepy(time.Millisecond)}, grpc.ExitWait(20*time.Second))
		defer f.close()
		// GOAWAY closes the way for new calls of a real client, so these come in
		// through the handler, as calls do that were on their way.
		gate := newDirectCaller(t, f.server)
		held := openChat(t, t.Context(), f.client())
		go func() { _ = f.server.Stop(t.Context()) }()
		synctest.Wait()

		if trailer, err := gate.sayHello(governedIncoming(t.Context(), "n1")); status.Code(err) != codes.Unavailable {
			t.Errorf("a caller that moves: %v, want Unavailable", err)
		} else if proof, ok := proofOf(trailer); !ok || proof.Reason != wire.Draining || proof.Nonce != "n1" {
			t.Errorf("its proof: %+v, %v", proof, ok)
		}
		if _, err := gate.sayHello(t.Context()); err != nil {
			t.Errorf("a plain caller before the second GOAWAY: %v, want OK", err)
		}
		if st, err := gate.check(governedIncoming(t.Context(), "n1")); err != nil || st != notServing {
			t.Errorf("a governed caller's health check: %v, %v; want this instance's NOT_SERVING, not a refusal", st, err)
		}
		time.Sleep(6*time.Second + time.Millisecond)
		if trailer, err := gate.sayHello(t.Context()); status.Code(err) != codes.Unavailable || len(trailer) != 0 {
			t.Errorf("a plain caller after the second GOAWAY: %v, trailer %v; want Unavailable", err, trailer)
		}
		if err := held.CloseSend(); err != nil {
			t.Fatal(err)
		}
		if _, err := held.Recv(); !errors.Is(err, io.EOF) {
			t.Errorf("the running stream ends with %v, want EOF", err)
		}
	})
}

func TestStopWithCancelledContextAbortsAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{hello: sleepy(time.Hour)})
		defer f.close()
		client := f.client()
		reply := make(chan error, 1)
		go func() {
			_, err := client.SayHello(t.Context(), &hellov1.SayHelloRequest{})
			reply <- err
		}()
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		go func() {
			time.Sleep(time.Second)
			cancel()
		}()
		took, err := f.stop(ctx)
		if err != nil || took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("Stop took %v, %v; want 1 s", took, err)
		}
		if err := <-reply; status.Code(err) != codes.Unavailable {
			t.Errorf("the call: %v, want Unavailable", err)
		}
	})
}

func TestInvariant10StopLeavesBehindWhatIgnoresEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		release := make(chan struct{})
		f := startServer(t, &fakeGreeter{hello: func(context.Context, *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			<-release
			return &hellov1.SayHelloResponse{}, nil
		}}, grpc.ExitWait(time.Second))
		client := f.client()
		for range 2 {
			go func() { _, _ = client.SayHello(t.Context(), &hellov1.SayHelloRequest{}) }()
		}
		synctest.Wait()
		took, err := f.stop(t.Context())
		if took > 1200*time.Millisecond {
			t.Errorf("Stop took %v, want 1 s and a short bound", took)
		}
		if err == nil || !strings.Contains(err.Error(), "/hello.v1.Greeter/SayHello (2)") {
			t.Errorf("Stop = %v, want the method and the number of its handlers", err)
		}
		if err := <-f.started; err != nil {
			t.Errorf("Start = %v", err)
		}
		_ = f.conns[0].Close()
		close(release)
	})
}

func TestSecondStopJoinsAndForces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{}, grpc.ExitWait(time.Hour))
		defer f.close()
		openChat(t, t.Context(), f.client())
		first := make(chan error, 1)
		go func() { first <- f.server.Stop(t.Context()) }()
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		took, err := f.stop(ctx)
		if err != nil || took < time.Second || took > 1200*time.Millisecond {
			t.Errorf("the second Stop took %v, %v; want 1 s", took, err)
		}
		if err := <-first; err != nil {
			t.Errorf("the first Stop = %v", err)
		}
	})
}

func TestStopBeforeStartFreesThePort(t *testing.T) {
	s := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	endpoint, err := s.Endpoint()
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Stop(t.Context()); err != nil {
		t.Errorf("Stop = %v", err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Errorf("Start after Stop = %v, want nil", err)
	}
	again := grpc.NewServer(grpc.Address(endpoint.Host))
	if _, err := again.Endpoint(); err != nil {
		t.Errorf("the port is still taken: %v", err)
	}
	_ = again.Stop(t.Context())
}

func TestStopDuringStart(t *testing.T) {
	for range 50 {
		s := grpc.NewServer(grpc.Address("127.0.0.1:0"))
		started := make(chan error, 1)
		go func() { started <- s.Start(t.Context()) }()
		if err := s.Stop(t.Context()); err != nil {
			t.Errorf("Stop = %v", err)
		}
		if err := <-started; err != nil {
			t.Errorf("Start = %v, want nil", err)
		}
	}
}

func TestServerSetsThePhaseUnlessManaged(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{})
		if p := f.server.Health().Phase(); p != health.Ready {
			t.Errorf("phase %v while serving, want ready", p)
		}
		f.close()
		if p := f.server.Health().Phase(); p != health.Stopped {
			t.Errorf("phase %v after Stop, want stopped", p)
		}
		managed := grpc.NewServer(grpc.Listener(newListener()))
		started := make(chan error, 1)
		go func() { started <- managed.Start(health.NewManagedContext(t.Context())) }()
		synctest.Wait()
		_ = managed.Stop(t.Context())
		if p := managed.Health().Phase(); p != health.Starting {
			t.Errorf("phase %v of a managed server, want it untouched", p)
		}
		if err := <-started; err != nil {
			t.Error(err)
		}
	})
}

// directCaller calls handlers as grpc-go does, without a connection.
type directCaller struct{ server *grpc.Server }

// fakeWire stands for grpc-go's stream.
type fakeWire struct {
	stdgrpc.ServerTransportStream
	trailer metadata.MD
}

func (w *fakeWire) SetTrailer(md metadata.MD) error {
	w.trailer = metadata.Join(w.trailer, md)
	return nil
}

func (w *fakeWire) SetHeader(metadata.MD) error { return nil }

func newDirectCaller(t *testing.T, s *grpc.Server) *directCaller {
	t.Helper()
	return &directCaller{server: s}
}

func (d *directCaller) sayHello(ctx context.Context) (metadata.MD, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel() // grpc-go ends the ctx once the status is out
	stream := &fakeWire{}
	handler := grpc.UnaryHandlerOf(d.server, hellov1.Greeter_SayHello_FullMethodName)
	_, err := handler(&fakeGreeter{}, stdgrpc.NewContextWithServerTransportStream(ctx, stream), func(any) error { return nil }, nil)
	return stream.trailer, err
}

// check asks the health service of a server that drains.
func (d *directCaller) check(ctx context.Context) (healthpb.HealthCheckResponse_ServingStatus, error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	handler := grpc.UnaryHandlerOf(d.server, healthpb.Health_Check_FullMethodName)
	service := grpc.HealthServiceOf(d.server)
	reply, err := handler(service, stdgrpc.NewContextWithServerTransportStream(ctx, &fakeWire{}), func(any) error { return nil }, nil)
	out, _ := reply.(*healthpb.HealthCheckResponse)
	return out.GetStatus(), err
}

func governedIncoming(ctx context.Context, nonce string) context.Context {
	return metadata.NewIncomingContext(ctx, metadata.Pairs(wire.HeaderKey, wire.Header{Caller: "orders", Nonce: nonce}.String()))
}
