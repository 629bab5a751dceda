package main

import (
	"context"
	"errors"
	"time"

	stdgrpc "google.golang.org/grpc"

	"github.com/materpc/materpc"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/transport/grpc"
)

// show is one run: a fleet, a client that loads it, and the script.
type show struct {
	config   config
	registry registry.Registry
	name     string // of the registry, for the servers
	screen   *screen

	fleet  *fleet
	tally  *tally
	script *script
}

func newShow(c config, reg registry.Registry, name string, out *screen) *show {
	return &show{config: c, registry: reg, name: name, screen: out}
}

// run returns the summary, nil if nothing was called, and an error when calls
// failed or a server misbehaved. No process is left when it returns.
func (s *show) run(interrupted context.Context) (*summary, error) {
	ctx, fail := context.WithCancelCause(interrupted)
	defer fail(nil)
	s.fleet = newFleet(s.config, s.name, fail)
	s.screen.introduce(s.config)
	if err := s.fleet.start(ctx); err != nil {
		return nil, errors.Join(err, s.fleet.stop())
	}
	for _, l := range s.fleet.newest() {
		s.screen.event("%s serves as process %d on %s", l.id, l.pid, l.address)
	}

	// region:client
	conn, err := grpc.NewClient("discovery:///"+service,
		grpc.WithName("quickstart"),
		grpc.WithDiscovery(s.registry),
		grpc.WithInsecure(),
		grpc.WithEvents(noteMoves),
		grpc.WithOptions(stdgrpc.WithContextDialer(distance(s.config.rtt).dial)),
	)
	// endregion:client
	if err != nil {
		return nil, errors.Join(err, s.fleet.stop())
	}
	result, err := s.underLoad(ctx, hellov1.NewGreeterClient(conn))
	if cause := context.Cause(ctx); cause != nil && interrupted.Err() == nil {
		err = errors.Join(cause, err)
	}
	err = errors.Join(err, grpc.Close(context.WithoutCancel(ctx), conn), s.fleet.stop())
	result.interrupted = interrupted.Err() != nil
	result.lives = s.fleet.history()
	s.screen.conclude(result)
	return result, errors.Join(err, result.verdict())
}

// underLoad makes calls for the duration while the script plays.
func (s *show) underLoad(ctx context.Context, client hellov1.GreeterClient) (*summary, error) {
	s.tally = newTally(s.fleet.stateOf)
	s.script = &script{config: s.config, fleet: s.fleet, tally: s.tally, screen: s.screen}
	ctx, cancel := context.WithTimeout(ctx, s.config.duration)
	defer cancel()
	began := time.Now()
	unfollow := s.screen.follow(s.status(began))
	played := make(chan error, 1)
	go func() { played <- s.script.play(ctx) }()

	skipped := newLoad(client, s.config.rate, s.tally).run(ctx)
	took := time.Since(began)
	err := <-played
	unfollow()
	return summarize(s.config, s.tally, s.script, took, skipped), err
}

// status returns what the screen asks for while it follows the load.
func (s *show) status(began time.Time) func() status {
	return func() status {
		c, answers := s.tally.now()
		return status{
			elapsed: time.Since(began), whole: s.config.duration,
			servers: s.fleet.newest(), counts: c, answers: answers,
		}
	}
}

// noteMoves hears from the client that a call went to another server by itself.
// The call's own ctx leads to its record.
func noteMoves(e materpc.Event) {
	if e.Type != materpc.RPCFinish || e.Info.Moves() == 0 {
		return
	}
	if r, ok := e.Info.Value(recordKey{}).(*record); ok {
		r.moved.Store(true)
	}
}
