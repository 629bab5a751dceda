package app

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/go-kratos/kratos/v2/transport"

	"github.com/materpc/materpc/health"
	"github.com/materpc/materpc/registry"
)

// startSteps is the order of the start. Why this one:
//
//   - bind before the hooks: they may read the endpoints, a taken port fails
//     before anything has an effect;
//   - register after serving: nobody is sent to a server that does not answer;
//   - ready last: a readiness probe sees NOT_SERVING until the last hook is done.
func (r *run) startSteps() []step {
	return []step{
		{"validate", r.opts.validate},
		{"bind", r.bind},
		{"before-start hooks", r.beforeStart},
		{"serve", r.serve},
		{"register", r.register},
		{"after-start hooks", r.afterStart},
		{"ready", r.becomeReady},
	}
}

// start runs the start list. It returns the error of the step that failed; nil
// when the app is ready or a stop or a failed server interrupted the start. What
// an interrupted step says is no reason of the stop: it is a warning, unless it
// says no more than that it was interrupted. The stop list undoes whatever was
// done.
func (r *run) start() error {
	defer context.AfterFunc(r.app.asked, r.endLive)()
	defer context.AfterFunc(r.broken, r.endLive)()
	for _, s := range r.startSteps() {
		if r.interrupted() {
			return nil
		}
		err := r.do(s)
		switch {
		case err == nil:
		case !r.interrupted():
			return err
		case !errors.Is(err, context.Canceled):
			r.queue.emit(Event{Kind: Warning, Err: err, Text: "app: the start was interrupted in " + s.name + ", which failed besides: " + err.Error()})
		}
	}
	return nil
}

func (r *run) interrupted() bool {
	return r.app.asked.Err() != nil || r.broken.Err() != nil
}

// bound is a server that holds a socket because it was asked for its endpoint.
type bound struct {
	name string
	srv  transport.Server
	host string // host:port of the endpoint
}

// bind asks every Endpointer for its endpoint, which binds it, and makes the
// instance. All faults are reported at once.
func (r *run) bind() error {
	r.setPhase(health.Starting)
	var faults []error
	var endpoints []string
	for i, srv := range r.opts.servers {
		e, ok := srv.(transport.Endpointer)
		if !ok {
			continue
		}
		name := serverName(i, srv)
		faults = append(faults, guarded(name+" Endpoint", func() error {
			u, err := e.Endpoint()
			if err == nil && u == nil {
				err = errors.New("neither an endpoint nor an error")
			}
			if err != nil {
				return err
			}
			r.bound = append(r.bound, bound{name: name, srv: srv, host: u.Host})
			endpoints = append(endpoints, u.String())
			return nil
		}))
	}
	if len(r.opts.endpoints) > 0 {
		endpoints = nil
		for _, u := range r.opts.endpoints {
			endpoints = append(endpoints, u.String())
		}
	}
	fault := join(faults...)
	if fault == nil && r.opts.registrar != nil && len(endpoints) == 0 {
		r.queue.emit(Event{Kind: Warning, Text: "app: the instance is registered without endpoints: no server has one and Endpoint is not given"})
	}
	r.app.instance.Store(&kregistry.ServiceInstance{
		ID: r.opts.id, Name: r.opts.name, Version: r.opts.version,
		Metadata: r.metadata(), Endpoints: endpoints,
	})
	return fault
}

// metadata is what is registered: what servers say of themselves, under what
// the user gave.
func (r *run) metadata() map[string]string {
	all := make(map[string]string)
	for i, srv := range r.opts.servers {
		if d, ok := srv.(interface{ InstanceMetadata() map[string]string }); ok {
			_ = guarded(serverName(i, srv)+" InstanceMetadata", func() error { // without it clients learn the same from the first proof
				maps.Copy(all, d.InstanceMetadata())
				return nil
			})
		}
	}
	maps.Copy(all, r.opts.metadata)
	return all
}

func (r *run) beforeStart() error {
	r.hooksBegan = len(r.opts.beforeStart) > 0
	return r.startHooks("before-start hook", r.opts.beforeStart)
}

func (r *run) afterStart() error {
	return r.startHooks("after-start hook", r.opts.afterStart)
}

// startHooks runs hooks until one fails. They have no bound: a migration may
// take its time. A stop or a failed server ends them.
func (r *run) startHooks(kind string, hooks []hook) error {
	for i, fn := range hooks {
		if err := call(r.live, fmt.Sprintf("%s %d", kind, i+1), patience{grace: stepGrace}, fn); err != nil {
			return err
		}
	}
	return nil
}

// register makes the instance known. The registration works on its own copy: a
// backend that changes it reaches nobody else.
func (r *run) register() error {
	if r.opts.registrar == nil {
		return nil
	}
	r.registration = registry.NewRegistration(r.opts.registrar, r.app.instance.Load(), registry.OnEvent(r.hear))
	ctx, cancel := timeout(r.live, r.opts.register)
	defer cancel()
	err := call(ctx, "register", patience{grace: stepGrace}, r.registration.Register)
	r.registered = err == nil
	return err
}

// hear tells of a Register that was given up and landed afterwards, and of
// another owner of the same record: neither is in any error.
func (r *run) hear(e registry.Event) {
	switch e.Kind {
	case registry.LateWriteKept, registry.LateWriteUndone, registry.RecordContested:
		r.queue.emit(Event{Kind: Warning, Err: e.Err, Text: "app: registration: " + e.String()})
	}
}

func (r *run) becomeReady() error {
	r.ready = true
	r.setPhase(health.Ready)
	return nil
}

// timeout is context.WithTimeout where 0 is no timeout.
func timeout(ctx context.Context, d time.Duration) (context.Context, context.CancelFunc) {
	if d == 0 {
		return context.WithCancel(ctx)
	}
	return context.WithTimeout(ctx, min(d, unlimited))
}
