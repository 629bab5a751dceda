package app

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/url"
	"os"
	"os/signal"
	"reflect"
	"slices"
	"syscall"
	"time"

	"github.com/go-kratos/kratos/v2/log"
	"github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/transport"
	"github.com/google/uuid"
)

const (
	defaultRegisterTimeout = 10 * time.Second // as Kratos
	defaultDeregisterBound = 3 * time.Second
	defaultWindow          = 2 * time.Second
	defaultExitWait        = 5 * time.Second
)

// Option is an application option. Options add up: where a value can hold
// several things (Server, Endpoint, Metadata, Signal, hooks, Events) a repeated
// option appends; else the last one counts. Faults surface in Run, all at once.
type Option func(o *options)

type hook = func(context.Context) error

type options struct {
	id, name, version string
	metadata          map[string]string
	endpoints         []*url.URL

	ctx        context.Context
	sigs       []os.Signal
	sigsChosen bool
	notify     func(chan<- os.Signal, ...os.Signal)

	logger     log.Logger
	slog       *slog.Logger
	events     []func(Event)
	registrar  registry.Registrar
	register   time.Duration // 0: no bound
	deregister time.Duration // 0: no bound
	window     time.Duration
	exitWait   time.Duration
	stop       time.Duration // 0: no bound
	servers    []transport.Server

	beforeStart, afterStart, beforeStop, afterStop []hook

	faults []error
}

func newOptions(opts []Option) options {
	o := options{
		ctx:        context.Background(),
		notify:     signal.Notify,
		slog:       slog.Default(),
		register:   defaultRegisterTimeout,
		deregister: defaultDeregisterBound,
		window:     defaultWindow,
		exitWait:   defaultExitWait,
	}
	for _, opt := range opts {
		if opt != nil {
			opt(&o)
		}
	}
	if o.id == "" {
		o.id = uuid.NewString()
	}
	if !o.sigsChosen {
		o.sigs = []os.Signal{syscall.SIGTERM, syscall.SIGQUIT, syscall.SIGINT}
	}
	if o.registrar != nil && o.name == "" {
		o.fault("Name is empty but a Registrar is given: name the service to register")
	}
	return o
}

func (o *options) fault(format string, args ...any) {
	o.faults = append(o.faults, fmt.Errorf("app: "+format, args...))
}

func (o *options) validate() error { return errors.Join(o.faults...) }

// duration stores a duration that must not be negative.
func (o *options) duration(option string, d time.Duration, fields ...*time.Duration) {
	if d < 0 {
		o.fault("%s(%v) is negative: use 0 or more", option, d)
		return
	}
	for _, field := range fields {
		*field = d
	}
}

func (o *options) hook(option string, fn hook, hooks *[]hook) {
	if fn == nil {
		o.fault("%s(nil): pass a func(context.Context) error", option)
		return
	}
	*hooks = append(*hooks, fn)
}

// ID sets the instance id. Default, also for "": a random UUID.
func ID(id string) Option { return func(o *options) { o.id = id } }

// Name sets the service name; a Registrar needs one.
func Name(name string) Option { return func(o *options) { o.name = name } }

// Version sets the service version.
func Version(version string) Option { return func(o *options) { o.version = version } }

// Metadata adds service metadata; New copies the map.
func Metadata(md map[string]string) Option {
	return func(o *options) {
		if o.metadata == nil {
			o.metadata = make(map[string]string, len(md))
		}
		maps.Copy(o.metadata, md)
	}
}

// Endpoint adds endpoints to register verbatim. With one or more of them the
// endpoints of the servers are bound but not registered.
func Endpoint(endpoints ...*url.URL) Option {
	return func(o *options) {
		for i, e := range endpoints {
			if e == nil {
				o.fault("Endpoint: argument %d is nil: pass a *url.URL such as grpc://10.0.0.1:9000", i+1)
				continue
			}
			copied := *e
			o.endpoints = append(o.endpoints, &copied)
		}
	}
}

// Context sets the parent ctx. Its values reach hooks and servers; its end is a
// graceful stop and does not cancel requests. Default context.Background().
func Context(ctx context.Context) Option {
	return func(o *options) {
		if ctx == nil {
			o.fault("Context(nil): pass context.Background() or leave the option out")
			return
		}
		o.ctx = ctx
	}
}

// Logger sets the logger for warnings of the app and, as in Kratos, the global
// logger of Kratos's log package. Without it warnings go to [Slog].
func Logger(logger log.Logger) Option { return func(o *options) { o.logger = logger } }

// Slog sets the logger for warnings of the app when no [Logger] is given.
// Default slog.Default(); nil is silent.
func Slog(logger *slog.Logger) Option { return func(o *options) { o.slog = logger } }

// Server adds transport servers, each once. Kratos's option replaces earlier
// ones.
func Server(srv ...transport.Server) Option {
	return func(o *options) {
		for i, s := range srv {
			switch {
			case s == nil:
				o.fault("Server: argument %d is nil: pass a transport.Server", i+1)
			case nilInside(s):
				o.fault("Server: argument %d is a nil %T: make one, or leave it out", i+1, s)
			case slices.ContainsFunc(o.servers, func(before transport.Server) bool { return sameObject(before, s) }):
				o.fault("Server: argument %d (%T) was given before: a server runs once, leave it out or make another", i+1, s)
			default:
				o.servers = append(o.servers, s)
			}
		}
	}
}

// Signal sets the signals that stop the app, instead of SIGTERM, SIGQUIT and
// SIGINT. Signal() without arguments: none.
func Signal(sigs ...os.Signal) Option {
	return func(o *options) {
		o.sigsChosen = true
		o.sigs = append(o.sigs, slices.Clone(sigs)...)
	}
}

// Registrar sets where the instance is registered; nil is nowhere, a nil pointer
// with a type is a fault.
func Registrar(r registry.Registrar) Option {
	return func(o *options) {
		if nilInside(r) {
			o.fault("Registrar: a nil %T, which can register nothing: look at the error of what made it, or pass nil for none", r)
		}
		o.registrar = r
	}
}

// nilInside tells a nil pointer or function with a type, which the interface
// around it hides: its methods would panic once everything runs.
func nilInside(v any) bool {
	switch inner := reflect.ValueOf(v); inner.Kind() {
	case reflect.Pointer, reflect.Func:
		return inner.IsNil()
	}
	return false
}

// sameObject says whether two values are one object. Pointers to nothing may be
// equal although they are two, and equal values are copies.
func sameObject(a, b any) bool {
	t := reflect.TypeOf(a)
	return t == reflect.TypeOf(b) && t.Kind() == reflect.Pointer && t.Elem().Size() > 0 && a == b
}

// RegistrarTimeout bounds Register (default 10 s) and the deregistration
// (default 3 s); 0 is no bound.
func RegistrarTimeout(t time.Duration) Option {
	return func(o *options) { o.duration("RegistrarTimeout", t, &o.register, &o.deregister) }
}

// StopTimeout bounds the whole stop; 0, the default, is no bound beyond those of
// the steps. What does not fit is cut in proportion, with a warning at
// construction. A server that ignores its ctx can add 1 s.
func StopTimeout(t time.Duration) Option {
	return func(o *options) { o.duration("StopTimeout", t, &o.stop) }
}

// PropagationWindow is how long calls are still served after the
// deregistration has finished, so that callers learn of it. Default 2 s; it is 0
// when nothing was registered or the deregistration failed.
func PropagationWindow(d time.Duration) Option {
	return func(o *options) { o.duration("PropagationWindow", d, &o.window) }
}

// ExitWait is how long running calls may take once the servers are stopped: the
// deadline of the ctx of Server.Stop, unless a server's own wait is shorter.
// Default 5 s; 0 does not wait.
func ExitWait(d time.Duration) Option {
	return func(o *options) { o.duration("ExitWait", d, &o.exitWait) }
}

// Events adds a subscriber of lifecycle events. Events come one at a time, in
// order, on a goroutine of the app; a slow or panicking subscriber delays and
// breaks nothing. Warnings about the options come from within New.
func Events(fn func(Event)) Option {
	return func(o *options) {
		if fn == nil {
			o.fault("Events(nil): pass a func(app.Event)")
			return
		}
		o.events = append(o.events, fn)
	}
}

// BeforeStart adds a hook that runs after binding, before any server starts.
// Start hooks run in the order given; their ctx carries the [AppInfo] and lives
// until the servers are stopped, so work they start in the background may use it.
func BeforeStart(fn func(context.Context) error) Option {
	return func(o *options) { o.hook("BeforeStart", fn, &o.beforeStart) }
}

// AfterStart adds a hook that runs when the servers serve and the instance is
// registered, before the app is ready.
func AfterStart(fn func(context.Context) error) Option {
	return func(o *options) { o.hook("AfterStart", fn, &o.afterStart) }
}

// BeforeStop adds a hook that runs before the deregistration, while calls are
// served. Stop hooks run in the order given, all of them, with a live ctx whose
// deadline is their time (5 s, or their share of [StopTimeout]); a hook that
// does not return by then is left behind with an error. Errors are joined.
// BeforeStop hooks run when servers were started, also if the start failed later.
func BeforeStop(fn func(context.Context) error) Option {
	return func(o *options) { o.hook("BeforeStop", fn, &o.beforeStop) }
}

// AfterStop adds a hook that runs when all servers have stopped, also after a
// failed start if a before-start hook had begun or a server was started.
func AfterStop(fn func(context.Context) error) Option {
	return func(o *options) { o.hook("AfterStop", fn, &o.afterStop) }
}
