package grpc_test

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	kratos "github.com/go-kratos/kratos/v2"
	kerrors "github.com/go-kratos/kratos/v2/errors"
	"github.com/google/go-cmp/cmp"
	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/internal/wire"
	"github.com/materpc/materpc/transport/grpc"
)

// fakeAdmission refuses with what is set and counts its permits.
type fakeAdmission struct {
	mu       sync.Mutex
	refusal  *grpc.Refusal
	admitted int
	released int
	panics   bool
}

func (a *fakeAdmission) Admit(*materpc.RPCInfo) (grpc.Permit, *grpc.Refusal) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.panics {
		panic("key function")
	}
	if a.refusal != nil {
		return nil, a.refusal
	}
	a.admitted++
	return a, nil
}

func (a *fakeAdmission) Release(info *materpc.RPCInfo) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.released++
}

func (a *fakeAdmission) held() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.admitted - a.released
}

// fakeTracer counts and keeps results.
type fakeTracer struct {
	mu      sync.Mutex
	starts  int
	results []codes.Code
}

func (tr *fakeTracer) Start(ctx context.Context) context.Context {
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.starts++
	return ctx
}

func (tr *fakeTracer) Finish(ctx context.Context) {
	info, _ := materpc.FromContext(ctx)
	err, _ := info.Result()
	tr.mu.Lock()
	defer tr.mu.Unlock()
	tr.results = append(tr.results, status.Code(err))
}

func TestInvariant05EveryRefusalIsAWholeRPC(t *testing.T) {
	tests := map[string]struct {
		refusal  *grpc.Refusal
		code     codes.Code
		reason   string
		pushback string
		proof    bool
	}{
		"overloaded": {&grpc.Refusal{Reason: grpc.ReasonOverloaded}, codes.ResourceExhausted, "RATELIMIT", "", true},
		"limited":    {&grpc.Refusal{Reason: grpc.ReasonLimited, Pushback: time.Second}, codes.ResourceExhausted, "RATELIMIT", "1000", true},
		"own error": {
			&grpc.Refusal{Err: kerrors.Forbidden("NO_ENTRY", "not you"), Pushback: -1}, codes.PermissionDenied, "NO_ENTRY", "-1",
			false,
		},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tracer := &fakeTracer{}
				first := &fakeAdmission{}
				f := startServer(t, &fakeGreeter{}, grpc.Admit(first, &fakeAdmission{refusal: tt.refusal}), grpc.Tracers(tracer))
				defer f.close()
				var trailer metadata.MD
				_, err := f.client().SayHello(governed(t.Context(), "n1"), &hellov1.SayHelloRequest{}, stdgrpc.Trailer(&trailer))
				if status.Code(err) != tt.code || kerrors.Reason(err) != tt.reason {
					t.Errorf("error %v (reason %q), want %v with %q", err, kerrors.Reason(err), tt.code, tt.reason)
				}
				proof, ok := proofOf(trailer)
				if ok != tt.proof || ok && (proof.Nonce != "n1" || proof.Reason != tt.refusal.Reason) {
					t.Errorf("proof %+v, %v", proof, ok)
				}
				if got := strings.Join(trailer.Get("grpc-retry-pushback-ms"), ","); got != tt.pushback {
					t.Errorf("pushback %q, want %q", got, tt.pushback)
				}
				synctest.Wait()
				want := []materpc.EventType{materpc.RPCStart, materpc.Refusal, materpc.RPCFinish}
				if diff := cmp.Diff(want, f.events.types(hellov1.Greeter_SayHello_FullMethodName)); diff != "" {
					t.Errorf("events (-want +got):\n%s", diff)
				}
				if diff := cmp.Diff([]codes.Code{tt.code}, tracer.results); diff != "" || tracer.starts != 1 {
					t.Errorf("tracer: %d starts, results (-want +got):\n%s", tracer.starts, diff)
				}
				if first.admitted != 1 || first.held() != 0 {
					t.Errorf("the admission before holds %d of %d permits", first.held(), first.admitted)
				}
			})
		})
	}
}

func TestInvariant05PermitIsHeldUntilTheWorkHasSettled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		admission := &fakeAdmission{}
		greeter := &fakeGreeter{}
		f := startServer(t, greeter, grpc.Admit(admission))
		defer f.close()
		var replied, ran time.Time
		greeter.hello = func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
			err := materpc.After(ctx, func(ctx context.Context) {
				if ctx.Err() != nil {
					t.Errorf("the ctx of After is over: %v", ctx.Err())
				}
				time.Sleep(time.Second)
				ran = time.Now()
				if admission.held() != 1 {
					t.Errorf("%d permits held in After, want 1", admission.held())
				}
			})
			return &hellov1.SayHelloResponse{}, err
		}
		if _, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{}); err != nil {
			t.Fatal(err)
		}
		replied = time.Now()
		time.Sleep(2 * time.Second)
		synctest.Wait()
		if got := ran.Sub(replied); got != time.Second {
			t.Errorf("After ended %v after the reply, want 1s: the reply must not wait for it", got)
		}
		if admission.held() != 0 {
			t.Errorf("%d permits left", admission.held())
		}
	})
}

func TestAfterRunsAfterErrorPanicAndCancel(t *testing.T) {
	tests := map[string]func(context.Context) error{
		"error":  func(context.Context) error { return errors.New("no") },
		"panic":  func(context.Context) error { panic("no") },
		"cancel": func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() },
	}
	for name, end := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				admission := &fakeAdmission{}
				greeter := &fakeGreeter{}
				f := startServer(t, greeter, grpc.Admit(admission))
				defer f.close()
				ran := 0
				greeter.hello = func(ctx context.Context, _ *hellov1.SayHelloRequest) (*hellov1.SayHelloResponse, error) {
					if err := materpc.After(ctx, func(context.Context) { ran++ }); err != nil {
						t.Error(err)
					}
					return nil, end(ctx)
				}
				ctx, cancel := context.WithTimeout(t.Context(), time.Second)
				defer cancel()
				if _, err := f.client().SayHello(ctx, &hellov1.SayHelloRequest{}); err == nil {
					t.Error("no error")
				}
				synctest.Wait()
				if ran != 1 || admission.held() != 0 {
					t.Errorf("After ran %d times, %d permits left", ran, admission.held())
				}
			})
		})
	}
}

func TestAdmissionRunsBeforeTheMessageIsDecoded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{}, grpc.Admit(&fakeAdmission{refusal: &grpc.Refusal{Reason: grpc.ReasonOverloaded}}))
		defer f.close()
		// Nothing is ever sent on this stream, so only a gate before the message can answer.
		stream, err := f.dial().NewStream(t.Context(), &stdgrpc.StreamDesc{ClientStreams: true}, hellov1.Greeter_SayHello_FullMethodName)
		if err != nil {
			t.Fatal(err)
		}
		if err := stream.RecvMsg(&hellov1.SayHelloResponse{}); status.Code(err) != codes.ResourceExhausted {
			t.Errorf("answer %v, want ResourceExhausted", err)
		}
	})
}

func TestInvariant12PanickingAdmissionRefusesAsInternal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		held := &fakeAdmission{}
		f := startServer(t, &fakeGreeter{}, grpc.Admit(held, &fakeAdmission{panics: true}))
		defer f.close()
		_, err := f.client().SayHello(t.Context(), &hellov1.SayHelloRequest{})
		if status.Code(err) != codes.Internal || strings.Contains(err.Error(), "key function") {
			t.Errorf("error %v, want Internal without the panic's value", err)
		}
		synctest.Wait()
		if n := len(f.events.of(materpc.HandlerPanic)); n != 1 || held.held() != 0 {
			t.Errorf("%d panic events, %d permits left", n, held.held())
		}
	})
}

func TestProofEchoesTheLastHeader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := startServer(t, &fakeGreeter{}, grpc.Admit(&fakeAdmission{refusal: &grpc.Refusal{Reason: grpc.ReasonOverloaded}}))
		defer f.close()
		client := f.client()
		for name, tt := range map[string]struct {
			ctx   context.Context
			nonce string
		}{
			"plain caller":     {t.Context(), ""},
			"relay's own last": {governed(t.Context(), "inherited", "own"), "own"},
			"unknown version":  {metadata.AppendToOutgoingContext(t.Context(), wire.HeaderKey, "9;a;n"), ""},
		} {
			var trailer metadata.MD
			if _, err := client.SayHello(tt.ctx, &hellov1.SayHelloRequest{}, stdgrpc.Trailer(&trailer)); err == nil {
				t.Errorf("%s: admitted", name)
			}
			if proof, _ := proofOf(trailer); proof.Nonce != tt.nonce {
				t.Errorf("%s: proof for %q, want %q", name, proof.Nonce, tt.nonce)
			}
		}
	})
}

func TestProofNamesTheRegisteredInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := grpc.NewServer(grpc.Listener(newListener()), grpc.Admit(&fakeAdmission{refusal: &grpc.Refusal{Reason: grpc.ReasonOverloaded}}))
		hellov1.RegisterGreeterServer(s, &fakeGreeter{})
		app := kratos.New(kratos.ID("host;1"), kratos.Name("greeter"))
		started := make(chan error, 1)
		go func() { started <- s.Start(kratos.NewContext(t.Context(), app)) }()
		<-s.Ready()
		trailer, err := newDirectCaller(t, s).sayHello(governedIncoming(t.Context(), "n1"))
		proof, ok := proofOf(trailer)
		if err == nil || !ok || proof.Instance != "host;1" || s.InstanceID() != "host;1" {
			t.Errorf("proof %+v, %v with %v, own id %q; want the app's id", proof, ok, err, s.InstanceID())
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Error(err)
		}
		if err := <-started; err != nil {
			t.Error(err)
		}
	})
}

func TestRegisterServiceCopiesTheDescription(t *testing.T) {
	before := [2]int{len(hellov1.Greeter_ServiceDesc.Methods), len(hellov1.Greeter_ServiceDesc.Streams)}
	handlers := make([]stdgrpc.StreamDesc, len(hellov1.Greeter_ServiceDesc.Streams))
	copy(handlers, hellov1.Greeter_ServiceDesc.Streams)
	synctest.Test(t, func(t *testing.T) {
		one, two := &fakeAdmission{}, &fakeAdmission{}
		f := startServer(t, &fakeGreeter{}, grpc.Admit(one))
		g := startServer(t, &fakeGreeter{}, grpc.Admit(two))
		defer f.close()
		defer g.close()
		callAllShapes(t, g.client())
		if one.admitted != 0 || two.admitted != 4 {
			t.Errorf("the servers' gates saw %d and %d calls, want 0 and 4", one.admitted, two.admitted)
		}
	})
	if after := [2]int{len(hellov1.Greeter_ServiceDesc.Methods), len(hellov1.Greeter_ServiceDesc.Streams)}; after != before {
		t.Errorf("description has %v methods and streams, had %v", after, before)
	}
	for i, d := range hellov1.Greeter_ServiceDesc.Streams {
		if pointerOf(d.Handler) != pointerOf(handlers[i].Handler) {
			t.Errorf("stream %s: the package's handler was replaced", d.StreamName)
		}
	}
}

func TestStartRefusesWhatBypassesTheGate(t *testing.T) {
	s := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(s.Server, &fakeGreeter{})
	started := make(chan error, 1)
	go func() { started <- s.Start(t.Context()) }()
	var err error
	select {
	case err = <-started:
	case <-s.Ready():
		_ = s.Stop(t.Context())
	}
	if err == nil || !strings.Contains(err.Error(), `"hello.v1.Greeter"`) || !strings.Contains(err.Error(), "bypasses the gate") {
		t.Errorf("Start = %v, want an error that names the service", err)
	}
}

func TestRegistrationFaultsSurfaceInStart(t *testing.T) {
	s := grpc.NewServer(grpc.Address("127.0.0.1:0"))
	hellov1.RegisterGreeterServer(s, &fakeGreeter{})
	hellov1.RegisterGreeterServer(s, &fakeGreeter{})
	wrong := hellov1.Greeter_ServiceDesc
	wrong.ServiceName = "hello.v1.Other"
	s.RegisterService(&wrong, struct{}{})
	err := s.Start(t.Context())
	for _, want := range []string{"registered twice", "does not implement"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("Start = %v, want %q in it", err, want)
		}
	}
}

func TestServerLayerOrder(t *testing.T) {
	want := []string{"gate", "call", "recovery", "deadline", "errors", "middlewares", "interceptors", "handler"}
	if got := grpc.ServerLayerNames(); !slices.Equal(got, want) {
		t.Errorf("layers %v, want %v", got, want)
	}
}
