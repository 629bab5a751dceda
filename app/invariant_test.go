package app_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/health"
)

func TestInvariant07SetSurvivesTheLifecycleOfAnApp(t *testing.T) {
	for _, when := range []string{"before Run", "in a before-start hook", "in an after-start hook"} {
		t.Run(when, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := health.New()
				s := &boundServer{fakeServer: newFakeServer(newTrace(), "s"), endpoint: "grpc://127.0.0.1:1", st: st}
				opts := quiet(app.Server(s))
				set := func(context.Context) error { st.Set("svc", health.NotServing); return nil }
				switch when {
				case "before Run":
					_ = set(t.Context())
				case "in a before-start hook":
					opts = append(opts, app.BeforeStart(set))
				default:
					opts = append(opts, app.AfterStart(set))
				}
				r := started(t, opts...)
				if got, _ := st.Check("svc"); got != health.NotServing {
					t.Errorf("svc = %v after the start", got)
				}
				if got, _ := st.Check(""); got != health.Serving {
					t.Errorf("the server = %v after the start", got)
				}
				if err := r.Stop(); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestInvariant07SecondAppWithTheSameStateStartsANewLife(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		for life := range 2 {
			s := &boundServer{fakeServer: newFakeServer(newTrace(), "s"), endpoint: "grpc://127.0.0.1:1", st: st}
			r := started(t, quiet(app.Server(s))...)
			if got, _ := st.Check(""); got != health.Serving {
				t.Errorf("life %d: %v", life+1, got)
			}
			if err := r.Stop(); err != nil {
				t.Error(err)
			}
		}
	})
}

func TestInvariant08StartAndStopAreOneOrderedSequenceEach(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		hook := func(name string) func(context.Context) error { return tr.hook(name, 0, nil) }
		s := &boundServer{fakeServer: newFakeServer(tr, "s"), endpoint: "grpc://127.0.0.1:1"}
		r := started(t, quiet(app.Server(s), app.Registrar(newFakeRegistrar(tr)),
			app.AfterStop(hook("after-stop 1")), app.BeforeStop(hook("before-stop 1")),
			app.AfterStart(hook("after-start 1")), app.BeforeStart(hook("before-start 1")),
			app.BeforeStart(hook("before-start 2")), app.AfterStart(hook("after-start 2")),
			app.BeforeStop(hook("before-stop 2")), app.AfterStop(hook("after-stop 2")))...)
		if err := r.Drain(); err != nil {
			t.Errorf("Drain = %v", err)
		}
		want := []string{
			"s bind", "before-start 1", "before-start 2", "s start", "register", "after-start 1", "after-start 2",
			"before-stop 1", "before-stop 2", "deregister", "deregistered", "s stop", "s stopped", "after-stop 1", "after-stop 2",
		}
		if diff := cmp.Diff(want, tr.list()); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestInvariant08WindowOpensAfterDeregistration(t *testing.T) {
	for _, slow := range []time.Duration{0, 700 * time.Millisecond} {
		t.Run(slow.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				reg := newFakeRegistrar(tr)
				reg.onDeregister = func(ctx context.Context) error { sleep(ctx, slow); return nil }
				r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg))...)
				if err := r.Stop(); err != nil {
					t.Errorf("Stop = %v", err)
				}
				if got := tr.gap("deregister", "deregistered"); got != slow {
					t.Errorf("Deregister took %v", got)
				}
				if got := tr.gap("deregistered", "s stop"); got != 2*time.Second {
					t.Errorf("window of %v, want 2s after the deregistration", got)
				}
			})
		})
	}
}

func TestInvariant08NoWindowWhenNothingWasRegistered(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, quiet(app.Server(newFakeServer(newTrace(), "s")))...)
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) != 0 {
			t.Errorf("Stop = %v after %v", err, time.Since(began))
		}
	})
}

func TestInvariant08NoWindowWhenRegisterWasInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		reg.onRegister = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg))...)
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) > 500*time.Millisecond {
			t.Errorf("Stop = %v after %v", err, time.Since(began))
		}
	})
}

func TestInvariant08BoundServerIsReleasedWithoutBeingStarted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		s := &boundServer{fakeServer: newFakeServer(tr, "s"), endpoint: "grpc://127.0.0.1:1"}
		err := start(quiet(app.Server(s), app.BeforeStart(func(context.Context) error { return errRoot }))...).end(t, time.Second)
		wantIs(t, err, errRoot)
		if diff := cmp.Diff([]string{"s bind", "s stop", "s stopped"}, tr.list()); diff != "" {
			t.Errorf("order (-want +got):\n%s", diff)
		}
	})
}

func TestInvariant08LateErrorOfStartIsToldOnlyAfterAWholeStart(t *testing.T) {
	for name, opts := range map[string][]app.Option{
		"ready":        nil,
		"failed start": {app.AfterStart(func(context.Context) error { return errRoot })},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				errLate := errors.New("late")
				s := newFakeServer(newTrace(), "s")
				s.lateErr = errLate
				r := start(quiet(append(opts, app.Server(s))...)...)
				time.Sleep(time.Second)
				_ = r.Stop()
				err := r.end(t, time.Second)
				if errors.Is(err, errLate) != (opts == nil) || errors.Is(err, errRoot) == (opts == nil) {
					t.Errorf("Run = %v", err)
				}
			})
		})
	}
}

func TestServerWhoseStartEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := newFakeServer(newTrace(), "s")
		s.wantsCtx = true
		r := started(t, quiet(app.Server(s))...)
		began := time.Now()
		if err := r.Stop(); err != nil || time.Since(began) != 0 {
			t.Errorf("Stop = %v after %v", err, time.Since(began))
		}
	})
}

// slowDirectory is a registrar that can be read back, after a while.
type slowDirectory struct {
	*fakeRegistrar
	kregistry.Discovery
	takes time.Duration
}

func (d slowDirectory) GetService(context.Context, string) ([]*kregistry.ServiceInstance, error) {
	time.Sleep(d.takes)
	return nil, nil
}

func TestInvariant02DeregistrationIsConfirmedByReadingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := slowDirectory{fakeRegistrar: newFakeRegistrar(tr), takes: 500 * time.Millisecond}
		reg.onDeregister = func(context.Context) error { return errRoot }
		r := started(t, quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg), app.RegistrarTimeout(200*time.Millisecond))...)
		if err := r.Stop(); err != nil {
			t.Errorf("Stop = %v although the record is known to be gone", err)
		}
		if got := tr.gap("deregister", "s stop"); got != 2500*time.Millisecond {
			t.Errorf("the servers were stopped %v after, want the reading back and then the window", got)
		}
	})
}

func TestCaseB57SecondSignalEndsTheReadingBack(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := slowDirectory{fakeRegistrar: newFakeRegistrar(tr), takes: time.Hour}
		reg.onDeregister = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
		var signals fakeSignals
		r := started(t, app.Name("svc"), app.Slog(nil), signals.option(), app.Server(newFakeServer(tr, "s")), app.Registrar(reg))
		signals.c <- syscall.SIGTERM
		time.Sleep(time.Second)
		tr.add("second")
		signals.c <- syscall.SIGTERM
		wantIs(t, r.end(t, 3*time.Second), app.ErrLeftBehind)
		if gap := tr.gap("second", "s stop"); gap > 200*time.Millisecond {
			t.Errorf("the server stop was forced after %v", gap)
		}
		time.Sleep(2 * time.Hour) // until the reading that was left behind ends
	})
}

func TestInvariant08RegisterInFlightIsUndone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		reg.onRegister = func(context.Context) error { time.Sleep(time.Second); return nil } // lands late, whatever ctx says
		s1, s2 := newFakeServer(tr, "s1"), newFakeServer(tr, "s2")
		s2.startErr, s2.startAfter = errRoot, 100*time.Millisecond
		err := start(quiet(app.Server(s1, s2), app.Registrar(reg))...).end(t, 5*time.Second)
		wantIs(t, err, errRoot)
		time.Sleep(5 * time.Second)
		if reg.len() != 0 {
			t.Errorf("the late Register left a record: %v", tr.list())
		}
		if tr.count("s1 stopped") != 1 {
			t.Error("s1 was not stopped")
		}
	})
}

func TestInvariant09HugeDurationsSaturate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		reg := newFakeRegistrar(tr)
		s := newFakeServer(tr, "s")
		s.busy = 24 * time.Hour
		r := started(t, quiet(app.Server(s), app.Registrar(reg), app.StopTimeout(math.MaxInt64),
			app.ExitWait(math.MaxInt64), app.RegistrarTimeout(math.MaxInt64), app.AfterStop(tr.hook("a", 0, nil)))...)
		if err := r.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
		if tr.count("s cut") != 0 || tr.count("a") != 1 || reg.len() != 0 {
			t.Errorf("a huge bound cut something: %v", tr.list())
		}
	})
}

func TestInvariant10ExitWaitEndsWhatOutlastsIt(t *testing.T) {
	for wait, want := range map[time.Duration]time.Duration{-1: 5 * time.Second, 0: 0, 300 * time.Millisecond: 300 * time.Millisecond} {
		t.Run(fmt.Sprint(wait), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				s1, s2 := newFakeServer(tr, "s1"), newFakeServer(tr, "s2")
				s1.busy, s2.busy = time.Hour, time.Hour
				opts := quiet(app.Server(s1, s2))
				if wait >= 0 {
					opts = append(opts, app.ExitWait(wait))
				}
				r := started(t, opts...)
				began := time.Now()
				if err := r.Stop(); err != nil {
					t.Errorf("Stop = %v", err)
				}
				if took := time.Since(began); took != want {
					t.Errorf("both servers were cut after %v, want %v", took, want)
				}
			})
		})
	}
}

func TestInvariant10ServerThatIgnoresItsContextIsLeftBehind(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		s := newFakeServer(tr, "s")
		s.hang = make(chan struct{})
		r := started(t, quiet(app.Server(s), app.ExitWait(300*time.Millisecond), app.AfterStop(tr.hook("a", 0, nil)))...)
		began := time.Now()
		err := r.Stop()
		wantIs(t, err, app.ErrLeftBehind)
		if took := time.Since(began); took != 1300*time.Millisecond {
			t.Errorf("left behind after %v, want exit wait + 1s", took)
		}
		if tr.count("a") != 1 {
			t.Error("the after-stop hook did not run")
		}
		if s.startCtx.Err() == nil {
			t.Error("the ctx of its Start goes on")
		}
		close(s.hang)
	})
}

func TestInvariant10StopTimeoutBoundsTheWhole(t *testing.T) {
	for _, timeout := range []time.Duration{300 * time.Millisecond, time.Second, 4 * time.Second, 20 * time.Second, time.Minute} {
		t.Run(timeout.String(), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				reg := newFakeRegistrar(tr)
				reg.onDeregister = func(ctx context.Context) error { <-ctx.Done(); return ctx.Err() }
				s := newFakeServer(tr, "s")
				s.busy = time.Hour
				r := started(t, quiet(app.Server(s), app.Registrar(reg), app.StopTimeout(timeout),
					app.BeforeStop(tr.hook("b1", time.Hour, nil)), app.BeforeStop(tr.hook("b2", time.Hour, nil)),
					app.AfterStop(tr.hook("a1", time.Hour, nil)), app.AfterStop(tr.hook("a2", time.Hour, nil)))...)
				began := time.Now()
				err := r.Stop()
				wantIs(t, err, context.DeadlineExceeded)
				if took := time.Since(began); took > timeout {
					t.Errorf("the stop took %v", took)
				}
				if first, second := tr.gap("b1", "b2"), tr.gap("b2", "deregister"); first > second+100*time.Millisecond {
					t.Errorf("hook 1 got %v, hook 2 %v", first, second)
				}
				for _, name := range []string{"b1", "b2", "deregister", "s cut", "a1", "a2"} {
					if tr.count(name) == 0 {
						t.Errorf("%s did not come to its turn", name)
					}
				}
			})
		})
	}
}

func TestInvariant10TimeThatIsNotUsedGoesToTheNextPart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tr := newTrace()
		s := newFakeServer(tr, "s")
		s.busy = time.Hour
		r := started(t, quiet(app.Server(s), app.Registrar(newFakeRegistrar(tr)), app.StopTimeout(8*time.Second),
			app.BeforeStop(tr.hook("b", 0, nil)), app.AfterStop(tr.hook("a", 0, nil)))...)
		if err := r.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
		if got := tr.gap("deregistered", "s stop"); got != 2*time.Second {
			t.Errorf("window %v, want the whole 2s", got)
		}
		if got := tr.gap("s stop", "s cut"); got < 3500*time.Millisecond || got > 5*time.Second {
			t.Errorf("exit wait %v, want what 8s leave beside the hook's reserve", got)
		}
	})
}

func TestInvariant12PanicsOfOthersAreErrors(t *testing.T) {
	boom := func(context.Context) error { panic("boom") }
	for name, tt := range map[string]struct {
		opt   app.Option
		start bool // it fails the start
	}{
		"before-start hook": {app.BeforeStart(boom), true},
		"after-start hook":  {app.AfterStart(boom), true},
		"before-stop hook":  {app.BeforeStop(boom), false},
		"after-stop hook":   {app.AfterStop(boom), false},
		"server Start":      {app.Server(panicServer{start: true}), true},
		"server Stop":       {app.Server(panicServer{}), false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tr := newTrace()
				reg := newFakeRegistrar(tr)
				r := start(quiet(app.Server(newFakeServer(tr, "s")), app.Registrar(reg), tt.opt)...)
				if !tt.start {
					time.Sleep(time.Second)
					_ = r.Stop()
				}
				wantIs(t, r.end(t, time.Second), app.ErrPanic)
				if reg.len() != 0 || tr.count("s start") != tr.count("s stopped") {
					t.Errorf("left behind: %v", tr.list())
				}
			})
		})
	}
}

type panicServer struct{ start bool }

func (p panicServer) Start(context.Context) error {
	if p.start {
		panic("boom")
	}
	return nil
}

func (p panicServer) Stop(context.Context) error { panic("boom") }

func TestInvariant12SubscriberThatPanicsOrHangsDelaysNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan struct{})
		var mu sync.Mutex
		var got []app.Event
		r := started(t, quiet(app.Server(newFakeServer(newTrace(), "s")),
			app.Events(func(app.Event) { panic("boom") }),
			app.Events(func(e app.Event) { mu.Lock(); got = append(got, e); mu.Unlock() }),
			app.Events(func(e app.Event) {
				if e.Step == "not ready" {
					<-hang
				}
			}))...)
		began := time.Now()
		if err := r.Stop(); err != nil {
			t.Errorf("Stop = %v", err)
		}
		if took := time.Since(began); took > time.Second {
			t.Errorf("the subscriber delayed the stop by %v", took)
		}
		close(hang)
		synctest.Wait()
		if len(got) != 28 { // two per step
			t.Errorf("%d events, want 28: %v", len(got), got)
		}
	})
}

func TestInvariant12HookLeftBehindPanicsLater(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := started(t, quiet(app.Server(newFakeServer(newTrace(), "s")), app.BeforeStop(func(context.Context) error {
			time.Sleep(time.Minute)
			panic("long after")
		}))...)
		wantIs(t, r.Stop(), app.ErrLeftBehind)
		time.Sleep(time.Hour)
	})
}

func TestSignalsAreEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var signals fakeSignals
		var got []string
		r := started(t, app.Slog(nil), signals.option(), app.Server(newFakeServer(newTrace(), "s")), app.BeforeStop(func(ctx context.Context) error {
			<-ctx.Done()
			return context.Cause(ctx)
		}), app.Events(func(e app.Event) {
			if e.Kind == app.Signaled || e.Kind == app.Warning {
				got = append(got, e.Kind.String()+": "+e.Text)
			}
		}))
		signals.c <- syscall.SIGTERM
		time.Sleep(time.Second)
		signals.c <- syscall.SIGINT
		if err := r.end(t, time.Second); err == nil || errors.Is(err, app.ErrLeftBehind) {
			t.Errorf("Run = %v, want the hook's own error", err)
		}
		want := []string{
			"signaled: terminated", "signaled: interrupt",
			"warning: app: second signal: every wait and running step of the stop is ended",
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("events (-want +got):\n%s", diff)
		}
	})
}
