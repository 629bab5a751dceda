package app_test

import (
	"context"
	"errors"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/health"
)

var errRoot = errors.New("address in use")

func TestCaseB51StartFailureReturnsTheRootErrorAndUndoes(t *testing.T) {
	type scene struct {
		s1, s2 *boundServer
		reg    *fakeRegistrar
		tr     *trace
	}
	tests := []struct {
		name     string
		arrange  func(sc *scene) []app.Option
		wantStop int // of each server
	}{
		{"a server fails at once", func(sc *scene) []app.Option {
			sc.s2.startErr = errRoot
			sc.reg.onRegister = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			return nil
		}, 1},
		{"a server fails during Register", func(sc *scene) []app.Option {
			sc.s2.startErr, sc.s2.startAfter = errRoot, 200*time.Millisecond
			sc.reg.onRegister = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
			return nil
		}, 1},
		{"before-start hook 2 of 3 fails", func(sc *scene) []app.Option {
			return []app.Option{
				app.BeforeStart(sc.tr.hook("h1", 0, nil)), app.BeforeStart(sc.tr.hook("h2", 0, errRoot)),
				app.BeforeStart(sc.tr.hook("h3", 0, nil)),
			}
		}, 0},
		{"after-start hook fails", func(sc *scene) []app.Option {
			return []app.Option{app.AfterStart(sc.tr.hook("h", 0, errRoot))}
		}, 1},
		{"Register fails", func(sc *scene) []app.Option {
			sc.reg.onRegister = func(context.Context) error { return errRoot }
			return nil
		}, 1},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				sc := &scene{tr: tr, reg: newFakeRegistrar(tr)}
				sc.s1 = &boundServer{fakeServer: newFakeServer(tr, "s1")}
				sc.s2 = &boundServer{fakeServer: newFakeServer(tr, "s2")}
				opts := quiet(app.Server(sc.s1.fakeServer, sc.s2.fakeServer), app.Registrar(sc.reg),
					app.BeforeStop(tr.hook("beforeStop", 0, nil)), app.AfterStop(tr.hook("afterStop", 0, nil)))
				err := start(append(opts, tt.arrange(sc)...)...).end(t, time.Second)
				wantIs(t, err, errRoot)
				if errors.Is(err, context.Canceled) {
					t.Errorf("the error hides its root: %v", err)
				}
				if n := sc.reg.len(); n != 0 {
					t.Errorf("%d records left", n)
				}
				for _, name := range []string{"s1", "s2"} {
					if got := tr.count(name + " stop"); got != tt.wantStop {
						t.Errorf("%s stopped %d times, want %d", name, got, tt.wantStop)
					}
					if got := tr.count(name + " start"); got != tt.wantStop {
						t.Errorf("%s started %d times, want %d", name, got, tt.wantStop)
					}
				}
				if got := tr.count("beforeStop"); got != tt.wantStop {
					t.Errorf("before-stop hook ran %d times, want %d", got, tt.wantStop)
				}
				if got := tr.count("afterStop"); got != 1 {
					t.Errorf("after-stop hook ran %d times, want 1", got)
				}
				if tr.count("h3") != 0 {
					t.Error("a hook ran after the failed one")
				}
			})
		})
	}
}

func TestCaseB53StopIsBoundedByTheStopTimeout(t *testing.T) {
	for _, tt := range []struct {
		name       string
		busy, want time.Duration
	}{
		{"unary of 100 ms", 100 * time.Millisecond, 100 * time.Millisecond},
		{"idle stream", time.Hour, 300 * time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				s := newFakeServer(tr, "s")
				s.busy = tt.busy
				r := started(t, quiet(app.Server(s), app.StopTimeout(300*time.Millisecond))...)
				began := time.Now()
				if err := r.Stop(); err != nil {
					t.Errorf("Stop = %v", err)
				}
				if took := time.Since(began); took != tt.want {
					t.Errorf("Stop took %v, want %v", took, tt.want)
				}
			})
		})
	}
}

func TestCaseB54ParentCancelIsAGracefulStop(t *testing.T) {
	stops := map[string]func(cancel context.CancelFunc, signals *fakeSignals){
		"parent cancel": func(cancel context.CancelFunc, _ *fakeSignals) { cancel() },
		"signal":        func(_ context.CancelFunc, f *fakeSignals) { f.c <- syscall.SIGTERM },
	}
	for name, stop := range stops {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				reg := newFakeRegistrar(tr)
				s := newFakeServer(tr, "s")
				s.busy = 300 * time.Millisecond // the call in flight
				type key struct{}
				parent, cancel := context.WithCancel(context.WithValue(t.Context(), key{}, "value"))
				defer cancel()
				var signals fakeSignals
				r := started(t, app.Name("svc"), app.Slog(nil), app.Context(parent), app.Server(s), app.Registrar(reg),
					app.StopTimeout(10*time.Second), app.PropagationWindow(0), signals.option())
				stop(cancel, &signals)
				time.Sleep(250 * time.Millisecond)
				if err := s.startCtx.Err(); err != nil {
					t.Errorf("the ctx of requests ended during the stop: %v", err)
				}
				if got := s.startCtx.Value(key{}); got != "value" {
					t.Errorf("the ctx of requests lost the parent's value: %v", got)
				}
				if err := r.end(t, time.Second); err != nil {
					t.Errorf("Run = %v", err)
				}
				if tr.count("s cut") != 0 || reg.len() != 0 {
					t.Errorf("call cut or record left: %v", tr.list())
				}
			})
		})
	}
}

func TestCaseB55DeregisterNeverBlocksTheServerStop(t *testing.T) {
	errReg := errors.New("registry is down")
	tests := []struct {
		name string
		fn   func(ctx context.Context) error
		want error
	}{
		{"error", func(context.Context) error { return errReg }, errReg},
		{"blocks until ctx ends", func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }, context.DeadlineExceeded},
		{"ignores ctx", func(context.Context) error { time.Sleep(time.Hour); return nil }, context.DeadlineExceeded},
		{"panics", func(context.Context) error { panic("boom") }, nil},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				reg := newFakeRegistrar(tr)
				reg.onDeregister = tt.fn
				s := newFakeServer(tr, "s")
				r := started(t, quiet(app.Server(s), app.Registrar(reg), app.RegistrarTimeout(200*time.Millisecond),
					app.StopTimeout(time.Second), app.AfterStop(tr.hook("afterStop", 0, nil)))...)
				stopErr := r.Stop()
				err := r.end(t, 1500*time.Millisecond)
				if took := time.Since(tr.began) - time.Second; took > 1500*time.Millisecond {
					t.Errorf("the stop took %v", took)
				}
				if err == nil || !errors.Is(err, stopErr) {
					t.Errorf("Run = %v, Stop = %v: want the failure, the same", err, stopErr)
				}
				if tt.want != nil {
					wantIs(t, err, tt.want)
				}
				if tr.count("s stop") != 1 || tr.count("afterStop") != 1 {
					t.Errorf("server or hook not stopped once: %v", tr.list())
				}
				if gap := tr.gap("deregister", "s stop"); gap > 500*time.Millisecond {
					t.Errorf("a window of %v opened although nothing was deregistered", gap)
				}
				time.Sleep(time.Hour) // until the goroutine that was left behind ends
			})
		})
	}
}

func TestCaseB56StopHooksRunWithALiveBoundedContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e1, e3 := errors.New("e1"), errors.New("e3")
		tr := newTrace()
		check := func(name string, err error) func(context.Context) error {
			return func(ctx context.Context) error {
				tr.add(name)
				if ctx.Err() != nil {
					t.Errorf("%s: ctx.Err() = %v", name, ctx.Err())
				}
				if d, ok := ctx.Deadline(); !ok || time.Until(d) > time.Second || time.Until(d) <= 10*time.Millisecond {
					t.Errorf("%s: deadline in %v, %v", name, time.Until(d), ok)
				}
				if info, ok := app.FromContext(ctx); !ok || info.Name() != "svc" {
					t.Errorf("%s: no app info", name)
				}
				if !sleep(ctx, 10*time.Millisecond) {
					t.Errorf("%s: cut short", name)
				}
				return err
			}
		}
		parent, cancel := context.WithCancel(t.Context())
		r := started(t, quiet(app.Context(parent), app.StopTimeout(time.Second), app.Server(newFakeServer(tr, "s")),
			app.BeforeStop(check("b1", e1)), app.BeforeStop(check("b2", nil)), app.BeforeStop(check("b3", e3)),
			app.AfterStop(check("a1", e1)), app.AfterStop(check("a2", nil)), app.AfterStop(check("a3", e3)))...)
		cancel()
		wantIs(t, r.end(t, time.Second), e1, e3)
		want := []string{"s start", "b1", "b2", "b3", "s stop", "s stopped", "a1", "a2", "a3"}
		if diff := cmp.Diff(want, tr.list()); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestCaseB56BlockedHookIsLeftBehind(t *testing.T) {
	for _, tt := range []struct {
		name    string
		timeout time.Duration
		limit   time.Duration
	}{
		{"within the stop timeout", time.Second, time.Second},
		{"5 s without one", 0, 5*time.Second + 50*time.Millisecond},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				release := make(chan struct{})
				defer close(release)
				r := started(t, quiet(app.StopTimeout(tt.timeout), app.Server(newFakeServer(tr, "s")),
					app.BeforeStop(func(context.Context) error { <-release; return nil }),
					app.AfterStop(tr.hook("after", 0, nil)))...)
				began := time.Now()
				err := r.Stop()
				wantIs(t, err, app.ErrLeftBehind, context.DeadlineExceeded)
				if took := time.Since(began); took > tt.limit {
					t.Errorf("took %v, want at most %v", took, tt.limit)
				}
				if tr.count("s stopped") != 1 || tr.count("after") != 1 {
					t.Errorf("not everything ran: %v", tr.list())
				}
			})
		})
	}
}

func TestCaseB57StopIsIdempotent(t *testing.T) {
	errHook := errors.New("hook")
	scenes := map[string]func(t *testing.T, r *running, signals *fakeSignals){
		"10 Stops": func(t *testing.T, r *running, _ *fakeSignals) {
			results := make([]error, 10)
			var group sync.WaitGroup
			for i := range results {
				group.Go(func() { results[i] = r.Stop() })
			}
			group.Wait()
			results = append(results, r.Stop(), r.Drain())
			for i, err := range results {
				if err == nil || !errors.Is(err, results[0]) {
					t.Errorf("Stop %d = %v, the first %v", i, err, results[0])
				}
			}
		},
		"2 signals": func(_ *testing.T, _ *running, signals *fakeSignals) {
			signals.c <- syscall.SIGTERM
			time.Sleep(50 * time.Millisecond)
			signals.c <- syscall.SIGINT
		},
	}
	for name, stop := range scenes {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				reg := newFakeRegistrar(tr)
				var signals fakeSignals
				r := started(t, app.Name("svc"), app.Slog(nil), signals.option(), app.Server(newFakeServer(tr, "s")), app.Registrar(reg),
					app.BeforeStop(tr.hook("b", 300*time.Millisecond, errHook)), app.AfterStop(tr.hook("a", 0, nil)))
				stop(t, r, &signals)
				if err := r.end(t, 3*time.Second); err == nil {
					t.Error("the hook's error is lost")
				}
				want := []string{"s start", "register", "b", "deregister", "deregistered", "s stop", "s stopped", "a"}
				if diff := cmp.Diff(want, tr.list()); diff != "" {
					t.Errorf("order (-want +got):\n%s", diff)
				}
			})
		})
	}
}

func TestCaseB57StopDuringStart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		s := &readyServer{boundServer: &boundServer{fakeServer: newFakeServer(tr, "s"), endpoint: "grpc://127.0.0.1:1"}, ready: make(chan struct{})}
		time.AfterFunc(200*time.Millisecond, func() { close(s.ready) })
		r := start(quiet(app.Server(s), app.Registrar(reg))...)
		time.Sleep(50 * time.Millisecond)
		if err := r.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
		if err := r.end(t, time.Second); err != nil {
			t.Errorf("Run = %v", err)
		}
		if diff := cmp.Diff([]string{"s bind", "s start", "s stop", "s stopped"}, tr.list()); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
		time.Sleep(time.Second)
	})
}

func TestCaseB57StopDuringEveryStartStep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// The start below takes 350 ms; stop it at every 10th of them.
		for at := time.Duration(0); at < 400*time.Millisecond; at += 10 * time.Millisecond {
			tr := newTrace()
			reg := newFakeRegistrar(tr)
			reg.onRegister = func(ctx context.Context) error { return tr.hook("registering", 100*time.Millisecond, nil)(ctx) }
			r := start(quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg),
				app.BeforeStart(tr.hook("bs", 100*time.Millisecond, nil)), app.AfterStart(tr.hook("as", 100*time.Millisecond, nil)))...)
			time.Sleep(at)
			if err := r.Stop(); err != nil {
				t.Errorf("at %v: Stop = %v", at, err)
			}
			if err := r.end(t, time.Second); err != nil {
				t.Errorf("at %v: Run = %v", at, err)
			}
			if reg.len() != 0 || tr.count("s start") != tr.count("s stopped") {
				t.Errorf("at %v: left behind: %d records, %v", at, reg.len(), tr.list())
			}
		}
	})
}

func TestCaseB57StopBeforeRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		a := app.New(quiet(app.Server(newFakeServer(tr, "s")), app.Events(func(e app.Event) { tr.add(e.Step) }))...)
		if err := a.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
		if err := a.Run(); err != nil {
			t.Errorf("Run = %v", err)
		}
		if err := a.Stop(); err != nil {
			t.Errorf("Stop after Run = %v", err)
		}
		if got := tr.list(); len(got) != 0 {
			t.Errorf("something ran: %v", got)
		}
		if err := a.Run(); !errors.Is(err, app.ErrRunTwice) {
			t.Errorf("second Run = %v", err)
		}
	})
}

func TestParentEndedBeforeRun(t *testing.T) {
	for range 20 {
		tr := newTrace()
		parent, cancel := context.WithCancel(t.Context())
		cancel()
		err := app.New(quiet(app.Context(parent), app.Events(func(e app.Event) { tr.add(e.Step) }))...).Run()
		if got := tr.list(); err != nil || len(got) != 0 {
			t.Errorf("Run = %v, ran %v", err, got)
		}
	}
}

func TestCaseB57SecondSignalForcesTheServerStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		release := make(chan struct{})
		defer close(release)
		reg.onDeregister = func(context.Context) error { <-release; return nil }
		s := newFakeServer(tr, "s")
		s.busy = time.Hour
		stuck := func(name string) func(context.Context) error {
			return func(context.Context) error { tr.add(name); <-release; return nil }
		}
		var signals fakeSignals
		r := started(t, app.Name("svc"), app.Slog(nil), signals.option(), app.Server(s), app.Registrar(reg),
			app.BeforeStop(stuck("b1")), app.BeforeStop(stuck("b2")), app.BeforeStop(tr.hook("b3", 0, nil)), app.AfterStop(stuck("a1")), app.AfterStop(tr.hook("a2", 0, nil)))
		signals.c <- syscall.SIGTERM
		time.Sleep(300 * time.Millisecond)
		tr.add("second")
		signals.c <- syscall.SIGTERM
		err := r.end(t, 3*time.Second)
		wantIs(t, err, app.ErrLeftBehind)
		if gap := tr.gap("second", "a2"); gap > time.Second {
			t.Errorf("a stuck hook after the server stop took %v", gap)
		}
		if gap := tr.gap("second", "s cut"); gap > 200*time.Millisecond {
			t.Errorf("the server stop was forced after %v", gap)
		}
		want := []string{"s start", "register", "b1", "second", "b2", "b3", "deregister", "s stop", "s cut", "s stopped", "a1", "a2"}
		if diff := cmp.Diff(want, tr.list()); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestCaseB57SecondSignalEndsTheWindow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		var signals fakeSignals
		r := started(t, app.Name("svc"), app.Slog(nil), signals.option(), app.Server(newFakeServer(tr, "s")),
			app.Registrar(newFakeRegistrar(tr)), app.PropagationWindow(time.Hour))
		signals.c <- syscall.SIGTERM
		time.Sleep(time.Minute)
		began := time.Now()
		signals.c <- syscall.SIGTERM
		if err := r.end(t, time.Second); err != nil || time.Since(began) != 0 {
			t.Errorf("Run = %v after %v", err, time.Since(began))
		}
	})
}

func TestCaseB58RegisterTimeoutDoesNotEndTheApp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		var ahead time.Duration
		reg.onRegister = func(ctx context.Context) error {
			deadline, _ := ctx.Deadline()
			ahead = time.Until(deadline)
			return nil
		}
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg), app.RegistrarTimeout(100*time.Millisecond))...)
		if ahead != 100*time.Millisecond {
			t.Errorf("deadline of Register %v ahead, want 100ms", ahead)
		}
		if reg.ctx.Err() == nil {
			t.Error("the ctx of Register outlives it")
		}
		if reg.len() != 1 {
			t.Error("not registered")
		}
		if err := r.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
	})
}

func TestCaseB60HealthTracksReadiness(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		st := health.New()
		st.Register("pkg.Service")
		s := &boundServer{fakeServer: newFakeServer(tr, "s"), endpoint: "grpc://127.0.0.1:1", st: st}
		s.busy = 100 * time.Millisecond
		expect := func(step string, want health.Status) {
			t.Helper()
			for _, name := range []string{"", "pkg.Service"} {
				if got, known := st.Check(name); got != want || !known {
					t.Errorf("%s: Check(%q) = %v, %v; want %v", step, name, got, known, want)
				}
			}
		}
		expect("new", health.NotServing)
		r := start(quiet(app.Server(s), app.Registrar(newFakeRegistrar(tr)), app.AfterStart(func(context.Context) error {
			time.Sleep(50 * time.Millisecond)
			expect("in the hook", health.NotServing)
			time.Sleep(150 * time.Millisecond)
			return nil
		}), app.BeforeStop(func(context.Context) error {
			st.Set("", health.Serving)
			st.Set("pkg.Service", health.Serving)
			expect("in the before-stop hook", health.NotServing)
			return nil
		}))...)
		time.Sleep(time.Second)
		expect("started", health.Serving)
		go func() { _ = r.Stop() }()
		time.Sleep(time.Second)
		expect("in the window", health.NotServing)
		if tr.count("s stop") != 0 {
			t.Error("stopped within the window")
		}
		if err := r.end(t, 2*time.Second); err != nil {
			t.Errorf("Run = %v", err)
		}
		expect("stopped", health.NotServing)
		if got := st.Phase(); got != health.Stopped {
			t.Errorf("phase %v, want stopped", got)
		}
		if _, known := st.Check("nope"); known {
			t.Error("an unknown name is known")
		}
		if !health.Managed(s.startCtx) {
			t.Error("the ctx of Start does not say that the phase is managed")
		}
	})
}
