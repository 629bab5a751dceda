package app_test

import (
	"context"
	"errors"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2"
	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/registry/local"
)

func TestBadOptionsAreReportedAllAtOnce(t *testing.T) {
	tr := newTrace()
	var none context.Context
	a := app.New(app.Signal(), app.Slog(nil),
		app.Registrar(newFakeRegistrar(tr)), app.Server(newFakeServer(tr, "s"), nil), app.Endpoint(nil), app.Context(none),
		app.BeforeStart(nil), app.AfterStop(nil), app.Events(nil),
		app.RegistrarTimeout(-1), app.StopTimeout(-1), app.ExitWait(-1), app.PropagationWindow(-1))
	err := a.Run()
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{
		"Name is empty", "Server: argument 2", "Endpoint: argument 1", "Context(nil)", "BeforeStart(nil)", "AfterStop(nil)",
		"Events(nil)", "RegistrarTimeout(-1ns)", "StopTimeout(-1ns)", "ExitWait(-1ns)", "PropagationWindow(-1ns)",
	} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("the error does not say %q:\n%v", part, err)
		}
	}
	if got := tr.list(); len(got) != 0 {
		t.Errorf("something ran: %v", got)
	}
}

// funcRegistrar is a registrar that is a function: it may be nil with a type, too.
type funcRegistrar func() error

func (f funcRegistrar) Register(context.Context, *kregistry.ServiceInstance) error   { return f() }
func (f funcRegistrar) Deregister(context.Context, *kregistry.ServiceInstance) error { return f() }

// TestPartsThatCannotRunAreFaultsAtOnce wants nothing started, and no warning
// beside the fault.
func TestPartsThatCannotRunAreFaultsAtOnce(t *testing.T) {
	is := func(o app.Option) func(*fakeServer) app.Option { return func(*fakeServer) app.Option { return o } }
	for name, c := range map[string]struct {
		option func(*fakeServer) app.Option // beside that server
		want   string
	}{
		"registrar: nil pointer":  {is(app.Registrar((*local.Registry)(nil))), "Registrar: a nil *local.Registry"},
		"registrar: nil function": {is(app.Registrar(funcRegistrar(nil))), "Registrar: a nil app_test.funcRegistrar"},
		"server: nil pointer":     {is(app.Server((*boundServer)(nil))), "Server: argument 1 is a nil *app_test.boundServer"},
		"server: twice":           {func(s *fakeServer) app.Option { return app.Server(s) }, "Server: argument 1 (*app_test.fakeServer) was given before"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr, warned := newTrace(), 0
				s := newFakeServer(tr, "s")
				r := start(quiet(app.Server(s), c.option(s), app.Events(func(e app.Event) {
					if e.Kind == app.Warning {
						warned++
					}
				}))...)
				synctest.Wait()
				select { // the clock stands still
				case err := <-r.result:
					if err == nil || !strings.Contains(err.Error(), c.want) || strings.Contains(err.Error(), "\n") {
						t.Errorf("Run = %v, want %s", err, c.want)
					}
				default:
					time.Sleep(time.Minute)
					t.Errorf("Run went on; Stop = %v", r.Stop())
				}
				if warned > 0 || len(tr.list()) > 0 {
					t.Errorf("%d warnings, %v", warned, tr.list())
				}
			})
		})
	}
}

// stateless is a server without state: pointers to it may be equal although they
// are two.
type stateless struct{}

func (*stateless) Start(context.Context) error { return nil }
func (*stateless) Stop(context.Context) error  { return nil }

// listed is a server that cannot be compared.
type listed struct{ _ []string }

func (listed) Start(context.Context) error { return nil }
func (listed) Stop(context.Context) error  { return nil }

func TestServersWithoutAnIdentityAreNoDuplicates(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, quiet(app.Server(&stateless{}, &stateless{}, listed{}, listed{}))...)
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestOptionsAddUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		u1, u2 := &url.URL{Scheme: "grpc", Host: "10.0.0.1:1"}, &url.URL{Scheme: "http", Host: "10.0.0.1:2"}
		r := started(t, quiet(app.ID("1"), app.Version("v1"), app.Server(newFakeServer(tr, "s1")), app.Server(newFakeServer(tr, "s2")),
			app.Metadata(map[string]string{"a": "1", "b": "1"}), app.Metadata(map[string]string{"b": "2"}),
			app.Endpoint(u1), app.Endpoint(u2), app.Registrar(reg), nil)...)
		u1.Host = "changed"
		got := reg.records["1"]
		if diff := cmp.Diff([]string{"grpc://10.0.0.1:1", "http://10.0.0.1:2"}, got.Endpoints); diff != "" {
			t.Errorf("endpoints (-want +got):\n%s", diff)
		}
		if diff := cmp.Diff(map[string]string{"a": "1", "b": "2"}, got.Metadata); diff != "" {
			t.Errorf("metadata (-want +got):\n%s", diff)
		}
		if tr.count("s1 start")+tr.count("s2 start") != 2 {
			t.Errorf("a Server option replaced another: %v", tr.list())
		}
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
	})
}

func TestAppInfoIsKratos(t *testing.T) {
	a := app.New(app.Name("n"), app.Version("v"))
	if info, ok := kratos.FromContext(app.NewContext(t.Context(), a)); !ok || info.Name() != "n" || info.Version() != "v" || info.ID() == "" {
		t.Errorf("kratos.FromContext = %v, %v", info, ok)
	}
	if info, ok := app.FromContext(kratos.NewContext(t.Context(), a)); !ok || info != app.AppInfo(a) {
		t.Errorf("app.FromContext = %v, %v", info, ok)
	}
	if b := app.New(app.ID("")); b.ID() == "" || b.ID() == a.ID() || a.Endpoint() != nil {
		t.Errorf("ids %q and %q, endpoints %v", a.ID(), b.ID(), a.Endpoint())
	}
}

func TestStopTimeoutThatCannotHoldItsPartsIsAWarning(t *testing.T) {
	var got []string
	record := app.Events(func(e app.Event) { got = append(got, e.Kind.String()+": "+e.Text) })
	app.New(quiet(record, app.Registrar(newFakeRegistrar(newTrace())), app.StopTimeout(9*time.Second))...)
	want := []string{"warning: app: StopTimeout(9s) cannot hold deregister 3s + propagation window 2s + exit wait 5s: each may be cut; raise it to 10s or lower the parts"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("events (-want +got):\n%s", diff)
	}
	app.New(quiet(record, app.Registrar(newFakeRegistrar(newTrace())), app.StopTimeout(10*time.Second))...)
	app.New(quiet(record, app.StopTimeout(5*time.Second))...)
	if len(got) != 1 {
		t.Errorf("warned of what fits: %v", got[1:])
	}
}

func TestBindFaultsAreReportedAllAtOnce(t *testing.T) {
	e1, e2 := errors.New("e1"), errors.New("e2")
	tr := newTrace()
	s1 := &boundServer{fakeServer: newFakeServer(tr, "s1"), err: e1}
	s2 := &boundServer{fakeServer: newFakeServer(tr, "s2"), err: e2}
	wantIs(t, app.New(quiet(app.Server(s1, s2))...).Run(), e1, e2)
	if diff := cmp.Diff([]string{"s1 bind", "s2 bind"}, tr.list()); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

func TestStartHookContextLivesUntilTheServersStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		worker := func(ctx context.Context) error {
			go func() { <-ctx.Done(); tr.add("worker ended") }()
			return nil
		}
		s := newFakeServer(tr, "s")
		s.busy = 500 * time.Millisecond
		r := started(t, quiet(app.Server(s), app.Registrar(newFakeRegistrar(tr)), app.BeforeStart(worker))...)
		if err := r.Stop(); err != nil {
			t.Error(err)
		}
		synctest.Wait()
		if tr.count("worker ended") != 1 || tr.gap("deregistered", "worker ended") != 2*time.Second {
			t.Errorf("the worker's ctx did not end with the server stop: %v", tr.list())
		}
	})
}

func TestStopFromAStartHook(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		var a *app.App
		a = app.New(quiet(app.Server(newFakeServer(tr, "s")), app.AfterStart(func(context.Context) error { return a.Stop() }))...)
		if err := a.Run(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if tr.count("s stopped") != 1 {
			t.Errorf("not stopped: %v", tr.list())
		}
	})
}
