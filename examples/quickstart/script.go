package main

import (
	"context"
	"time"
)

// script is what happens to the fleet under load: calm, every server in turn is
// restarted with SIGTERM, the one restarted last is killed with SIGKILL soon
// after, as the bad release that crashes under its first load; calm.
type script struct {
	config config
	fleet  *fleet
	tally  *tally
	screen *screen

	restarts, kills int // read when play has returned
}

const (
	// Shares of the load's duration.
	calmUntil  = 0.08 // then the first restart
	rollsUntil = 0.55 // once all servers had their turn, no restart begins after that
	killsUntil = 0.80 // no restart begins that would not be over by then

	breath    = 200 * time.Millisecond // between two restarts
	untilKill = 500 * time.Millisecond // from the last restart
	findBound = 2 * time.Second        // for a caller to find a new server
)

// play runs the script until it is over or ctx ends, which is no error. Fewer
// restarts than servers means that the load was too short for one round.
func (s *script) play(ctx context.Context) error {
	began := time.Now()
	at := func(share float64) time.Time {
		return began.Add(time.Duration(share * float64(s.config.duration)))
	}
	newest := 0
	err := until(ctx, at(calmUntil))
	for last := time.Duration(0); err == nil; {
		now := time.Now()
		round := s.restarts >= s.config.servers && now.After(at(rollsUntil))
		if round || now.Add(last).After(at(killsUntil)) {
			break
		}
		newest = s.restarts % s.config.servers
		err = s.restart(ctx, newest)
		last = time.Since(now)
	}
	if err == nil {
		err = pause(ctx, untilKill)
	}
	if err == nil {
		err = s.kill(ctx, newest)
	}
	if isEndOf(ctx, err) {
		return nil
	}
	return err
}

// restart is what a rolling deployment does to each server: ask it to leave,
// wait until it has, start the next one, and go on when that takes calls.
func (s *script) restart(ctx context.Context, slot int) error {
	old := s.fleet.newest()[slot].id
	took, err := s.fleet.terminate(slot)
	if err != nil {
		return err
	}
	next, started, err := s.replace(ctx, slot)
	if err != nil {
		return err
	}
	s.restarts++
	s.screen.event("SIGTERM %s: left in %s, its last calls done; %s took its first call %s later",
		old, seconds(took), next, seconds(started))
	return pause(ctx, breath)
}

// kill takes a server away without a word to anybody.
func (s *script) kill(ctx context.Context, slot int) error {
	old := s.fleet.newest()[slot].id
	s.fleet.kill(slot)
	s.kills++
	next, started, err := s.replace(ctx, slot)
	if err != nil {
		return err
	}
	s.screen.event("SIGKILL %s: gone with what it held; %s took its first call %s later", old, next, seconds(started))
	return nil
}

// replace fills an empty slot and waits until the new server has answered.
func (s *script) replace(ctx context.Context, slot int) (id string, took time.Duration, err error) {
	began := time.Now()
	if err := s.fleet.fill(ctx, slot); err != nil {
		return "", 0, err
	}
	id = s.fleet.newest()[slot].id
	for s.tally.answers(id) == 0 && time.Since(began) < findBound {
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return id, 0, err
		}
	}
	return id, time.Since(began), nil
}
