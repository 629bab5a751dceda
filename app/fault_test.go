package app_test

import (
	"context"
	"errors"
	"net"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	kgrpc "github.com/go-kratos/kratos/v2/transport/grpc"
	khttp "github.com/go-kratos/kratos/v2/transport/http"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/registry/memory"
)

// The numbered lifecycle faults of Kratos (measured at v2.8.3), one test each.

func TestKratosFault01ServersStopTheMomentDeregisterReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(newFakeRegistrar(tr)), app.PropagationWindow(700*time.Millisecond))...)
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if got := tr.gap("deregistered", "s stop"); got != 700*time.Millisecond {
			t.Errorf("served for %v after the deregistration", got)
		}
	})
}

func TestKratosFault02FailedServerLeavesTheInstanceRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		bad := newFakeServer(tr, "bad")
		r := started(t, quiet(app.Server(newFakeServer(tr, "s"), bad), app.Registrar(reg),
			app.BeforeStop(tr.hook("b", 0, nil)), app.AfterStop(tr.hook("a", 0, nil)))...)
		bad.quit <- errRoot
		err := r.end(t, 3*time.Second)
		wantIs(t, err, errRoot)
		want := []string{"b", "deregister", "deregistered", "bad stop", "bad stopped", "s stop", "s stopped", "a"}
		if tr.count("b")+tr.count("a") != 2 || reg.len() != 0 || tr.count("s stopped") != 1 {
			t.Errorf("got %v, want something like %v", tr.list(), want)
		}
		if got := err.Error(); got != "app: server 2 (*app_test.fakeServer) Start: address in use" {
			t.Errorf("the root error is told as %q", got)
		}
	})
}

func TestKratosFault03ParentCancelSkipsDeregisterAndHooks(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		parent, cancel := context.WithCancel(t.Context())
		r := started(t, quiet(app.Context(parent), app.Server(newFakeServer(tr, "s")), app.Registrar(reg), app.BeforeStop(tr.hook("b", time.Millisecond, nil)))...)
		cancel()
		if err := r.end(t, 3*time.Second); err != nil {
			t.Errorf("Run = %v", err)
		}
		if tr.count("b") != 1 || reg.len() != 0 {
			t.Errorf("the stop skipped something: %v", tr.list())
		}
	})
}

func TestKratosFault04FailedStartLeavesServersOrSocketsBehind(t *testing.T) {
	servers := map[string]func() app.Option{
		"grpc": func() app.Option { return app.Server(kgrpc.NewServer(kgrpc.Address("127.0.0.1:0"))) },
		"http": func() app.Option { return app.Server(khttp.NewServer(khttp.Address("127.0.0.1:0"))) },
	}
	failures := map[string]func() app.Option{
		"before-start hook": func() app.Option { return app.BeforeStart(func(context.Context) error { return errRoot }) },
		"after-start hook":  func() app.Option { return app.AfterStart(func(context.Context) error { return errRoot }) },
		"register": func() app.Option {
			reg := newFakeRegistrar(newTrace())
			reg.onRegister = func(context.Context) error { return errRoot }
			return app.Registrar(reg)
		},
	}
	for kind, server := range servers {
		for name, failure := range failures {
			t.Run(kind+" "+name, func(t *testing.T) {
				a := app.New(quiet(server(), failure())...)
				wantIs(t, a.Run(), errRoot)
				wantFree(t, a)
			})
		}
	}
}

// wantFree fails unless the ports of all endpoints can be taken.
func wantFree(t *testing.T, a *app.App) {
	t.Helper()
	if len(a.Endpoint()) == 0 {
		t.Error("nothing was bound")
	}
	for _, endpoint := range a.Endpoint() {
		host := hostOf(t, endpoint)
		lis, err := net.Listen("tcp", host)
		if err != nil {
			t.Errorf("%s is still bound: %v", endpoint, err)
			continue
		}
		_ = lis.Close()
	}
}

func TestKratosFault05FailingDeregisterHangsRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		reg.onDeregister = func(context.Context) error { return errRoot }
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg), app.AfterStop(tr.hook("a", 0, nil)))...)
		tr.add("ask")
		wantIs(t, r.Stop(), errRoot)
		wantIs(t, r.end(t, time.Second), errRoot)
		if tr.count("s stopped") != 1 || tr.count("a") != 1 {
			t.Errorf("not stopped: %v", tr.list())
		}
		if got := tr.gap("ask", "s stop"); got > 3*time.Second+50*time.Millisecond {
			t.Errorf("the servers were stopped after %v, want the bound of 3s and no window", got)
		}
	})
}

func TestKratosFault06StopTimeoutDoesNotEndAServer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		s := newFakeServer(tr, "s")
		s.hang = make(chan struct{})
		defer close(s.hang)
		r := started(t, quiet(app.Server(s), app.StopTimeout(300*time.Millisecond))...)
		began := time.Now()
		wantIs(t, r.Stop(), app.ErrLeftBehind)
		if took := time.Since(began); took > 1300*time.Millisecond {
			t.Errorf("Run was blocked for %v", took)
		}
	})
}

func TestKratosFault07SecondSignalIsSwallowed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(newTrace(), "s")
		s.busy = time.Hour
		var signals fakeSignals
		r := started(t, app.Slog(nil), app.ExitWait(time.Hour), signals.option(), app.Server(s))
		signals.c <- syscall.SIGINT
		time.Sleep(time.Second)
		began := time.Now()
		signals.c <- syscall.SIGINT
		if err := r.end(t, time.Second); err != nil || time.Since(began) > 200*time.Millisecond {
			t.Errorf("Run = %v, %v after the second signal", err, time.Since(began))
		}
	})
}

func TestKratosFault08StopTwiceRunsHooksTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(newFakeRegistrar(tr)), app.BeforeStop(tr.hook("b", 0, nil)))...)
		if err := errors.Join(r.Stop(), r.Stop()); err != nil {
			t.Error(err)
		}
		if tr.count("b") != 1 || tr.count("deregister") != 1 {
			t.Errorf("ran twice: %v", tr.list())
		}
	})
}

func TestKratosFault09RecordDependsOnTheContextOfRegister(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		reg := memory.New()
		r := started(t, quiet(app.ID("1"), app.Server(&boundServer{fakeServer: newFakeServer(newTrace(), "s"), endpoint: "grpc://127.0.0.1:1"}), app.Registrar(reg))...)
		time.Sleep(time.Hour)
		list, err := reg.GetService(t.Context(), "svc")
		if err != nil || len(list) != 1 || list[0].ID != "1" {
			t.Errorf("after an hour: %v, %v", list, err)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if list, err := reg.GetService(t.Context(), "svc"); err != nil || len(list) != 0 {
			t.Errorf("after the stop: %v, %v", list, err)
		}
	})
}

func TestKratosFault10HookErrorsAreLostHooksAreUnbounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e1, e2 := errors.New("e1"), errors.New("e2")
		tr := newTrace()
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")),
			app.BeforeStop(tr.hook("b1", 0, e1)), app.BeforeStop(tr.hook("b2", time.Hour, nil)),
			app.AfterStop(tr.hook("a1", 0, e2)), app.AfterStop(func(context.Context) error { panic("boom") }),
			app.AfterStop(tr.hook("a3", 0, nil)))...)
		wantIs(t, r.Stop(), e1, e2, context.DeadlineExceeded, app.ErrPanic)
		if tr.count("a3") != 1 {
			t.Error("a hook did not run")
		}
	})
}

func TestKratosFault11RegisteredBeforeServing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		s := &readyServer{boundServer: &boundServer{fakeServer: newFakeServer(tr, "s"), endpoint: "grpc://127.0.0.1:1"}, ready: make(chan struct{})}
		time.AfterFunc(300*time.Millisecond, func() { tr.add("ready"); close(s.ready) })
		r := started(t, quiet(app.Server(s), app.Registrar(newFakeRegistrar(tr)))...)
		if diff := cmp.Diff([]string{"s bind", "s start", "ready", "register"}, tr.list()); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestKratosFault12EndpointIsARace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		md := map[string]string{"k": "v"}
		s := &boundServer{fakeServer: newFakeServer(newTrace(), "s"), endpoint: "grpc://127.0.0.1:1"}
		reg := vandalRegistrar{newFakeRegistrar(newTrace())}
		r := start(quiet(app.ID("1"), app.Server(s), app.Metadata(md), app.Registrar(reg))...)
		md["k"] = "changed"
		var group sync.WaitGroup
		for range 4 {
			group.Go(func() {
				for range 100 {
					for i, e := range r.Endpoint() {
						r.Endpoint()[i] = e + "!"
					}
					r.Metadata()["k"] = "changed"
				}
			})
		}
		group.Wait()
		time.Sleep(time.Second)
		if diff := cmp.Diff([]string{"grpc://127.0.0.1:1"}, r.Endpoint()); diff != "" {
			t.Errorf("endpoints (-want +got):\n%s", diff)
		}
		if got := r.Metadata()["k"]; got != "v" {
			t.Errorf("metadata is shared: %v", got)
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
}

// vandalRegistrar changes what it is given.
type vandalRegistrar struct{ *fakeRegistrar }

func (r vandalRegistrar) Register(ctx context.Context, in *kregistry.ServiceInstance) error {
	in.Metadata["k"], in.Endpoints[0] = "changed", "changed"
	return r.fakeRegistrar.Register(ctx, in)
}

// Number 13 is what Kratos does well: it must stay so.
func TestKratosFault13StopDoesNotCancelRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		s := newFakeServer(tr, "s")
		s.busy = time.Second
		r := started(t, quiet(app.Server(s))...)
		time.AfterFunc(999*time.Millisecond, func() {
			if s.startCtx.Err() != nil {
				t.Error("the ctx of requests ended during the stop")
			}
		})
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		if s.startCtx.Err() == nil {
			t.Error("the ctx of requests outlives the app")
		}
	})
}
