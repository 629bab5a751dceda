package app_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/url"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-kratos/kratos/v2/log"

	"github.com/materpc/materpc/app"
	"github.com/materpc/materpc/registry/local"
)

// TestFailedStartIsToldByRunAlone wants nothing in the log that Run returns, and
// no warning that is a consequence of the fault.
func TestFailedStartIsToldByRunAlone(t *testing.T) {
	defer log.SetLogger(log.DefaultLogger) // app.Logger sets Kratos's
	fault := errors.New("address in use")
	endpoint := app.Endpoint(&url.URL{Scheme: "grpc", Host: "10.0.0.1:1"})
	for name, options := range map[string]func(*trace) []app.Option{
		"option": func(*trace) []app.Option { return []app.Option{app.ExitWait(-1)} },
		"bind": func(tr *trace) []app.Option {
			return []app.Option{app.Server(&boundServer{fakeServer: newFakeServer(tr, "s"), err: fault})}
		},
		"hook": func(tr *trace) []app.Option {
			return []app.Option{endpoint, app.BeforeStart(tr.hook("h", 0, fault))}
		},
		"serve": func(tr *trace) []app.Option {
			s := newFakeServer(tr, "s")
			s.startErr = fault
			return []app.Option{endpoint, app.Server(s)}
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				for kind, logger := range map[string]func(*bytes.Buffer) app.Option{
					"slog":   func(b *bytes.Buffer) app.Option { return app.Slog(slog.New(slog.NewTextHandler(b, nil))) },
					"kratos": func(b *bytes.Buffer) app.Option { return app.Logger(log.NewStdLogger(b)) },
				} {
					tr, said := newTrace(), new(bytes.Buffer)
					reg := newFakeRegistrar(tr)
					err := app.New(append(options(tr), app.Name("svc"), app.Signal(), logger(said), app.Registrar(reg))...).Run()
					if err == nil || strings.Contains(err.Error(), "\n") {
						t.Errorf("Run = %v, want one fault", err)
					}
					if said.Len() > 0 || reg.len() > 0 {
						t.Errorf("%s: beside the error %q the log says:\n%s", kind, err, said)
					}
				}
			})
		})
	}
}

// TestFaultBesideAnInterruptedStartIsAWarning: Run returns nil, so nobody else
// would tell.
func TestFaultBesideAnInterruptedStartIsAWarning(t *testing.T) {
	for name, c := range map[string]struct {
		err  error
		want int
	}{
		"a fault of its own":    {errors.New("half migrated"), 1},
		"only the interruption": {nil, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				warned := 0
				r := started(t, quiet(app.BeforeStart(func(ctx context.Context) error {
					<-ctx.Done()
					if c.err != nil {
						return c.err
					}
					return ctx.Err()
				}), app.Events(func(e app.Event) {
					if e.Kind == app.Warning && strings.Contains(e.Text, "before-start hooks") && (c.err == nil || errors.Is(e.Err, c.err)) {
						warned++
					}
				}))...)
				if err := r.Stop(); err != nil {
					t.Errorf("Stop = %v", err)
				}
				time.Sleep(time.Second)
				if warned != c.want {
					t.Errorf("%d warnings, want %d", warned, c.want)
				}
			})
		})
	}
}

// TestContestedRecordIsAWarning runs two apps under one name and id: the one
// whose record was taken over gets no calls, and Run returns nil.
func TestContestedRecordIsAWarning(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		var said [2]bytes.Buffer
		var apps [2]*running
		for i := range apps {
			reg, err := local.New(dir)
			if err != nil {
				t.Fatal(err)
			}
			defer func() { _ = reg.Close() }()
			apps[i] = started(t, app.Name("svc"), app.ID("1"), app.Signal(), app.Registrar(reg), app.PropagationWindow(0),
				app.Endpoint(&url.URL{Scheme: "grpc", Host: "10.0.0.1:1"}), app.Slog(slog.New(slog.NewTextHandler(&said[i], nil))))
		}
		time.Sleep(10 * time.Second)
		for _, a := range apps {
			if err := a.Stop(); err != nil {
				t.Errorf("Stop = %v", err)
			}
		}
		for i, want := range []int{1, 0} {
			got := said[i].String()
			if strings.Count(got, "level=WARN") != want || strings.Count(got, "give each an id of its own") != want {
				t.Errorf("app %d: want %d warning, the log says:\n%s", i+1, want, got)
			}
		}
	})
}
