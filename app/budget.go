package app

import (
	"fmt"
	"strings"
	"time"
)

const (
	// hookBound is the time of a stop hook when no StopTimeout says otherwise.
	hookBound = 5 * time.Second
	// hurry is the time that everything before the server stop shares once a
	// second signal has come; with one stepGrace it stays below 200 ms.
	hurry = 100 * time.Millisecond
	// hurriedHook is the time of a hook after the server stop in that case.
	hurriedHook = time.Second
	// unlimited is where durations saturate: nothing adds up to an overflow.
	unlimited = 365 * 24 * time.Hour
)

// part is one thing of the stop that takes time.
type part struct {
	bound   time.Duration // it gets no more than this; 0 is no time at all
	reserve time.Duration // kept for it while earlier parts run
	hook    bool
}

// budget divides the stop timeout over the parts of the stop, in their order:
// before-stop hooks, deregistration, window, exit wait, after-stop hooks. A part
// gets what is left less what is reserved for later ones, so time that one does
// not use goes to the next. Reserves are the bounds of the parts, cut in
// proportion when they do not fit; hooks together reserve up to 30 %.
type budget struct {
	deadline time.Time // zero: no stop timeout
	hurried  time.Time // when the second signal came
	parts    []part
	exit     int // parts before the exit wait
}

func newBudget(o *options, now time.Time) *budget {
	b := &budget{exit: len(o.beforeStop) + 2}
	hooks := len(o.beforeStop) + len(o.afterStop)
	hook := part{bound: hookBound, hook: true}
	fixed := fixedParts(o)
	if o.stop > 0 && o.stop < unlimited {
		b.deadline = now.Add(o.stop)
		hook.bound = unlimited
		share := 1.0
		if hooks > 0 {
			hook.reserve = min(hookBound, o.stop/10*3/time.Duration(hooks))
		}
		var sum time.Duration
		for i := range fixed {
			fixed[i].reserve = min(fixed[i].reserve, o.stop)
			sum += fixed[i].reserve
		}
		if room := o.stop - hook.reserve*time.Duration(hooks); sum > room {
			share = float64(room) / float64(sum)
		}
		for i := range fixed {
			fixed[i].reserve = time.Duration(float64(fixed[i].reserve) * share)
		}
	}
	for range o.beforeStop {
		b.parts = append(b.parts, hook)
	}
	b.parts = append(b.parts, fixed...)
	for range o.afterStop {
		b.parts = append(b.parts, hook)
	}
	return b
}

// fixedParts are the deregistration, the window and the exit wait.
func fixedParts(o *options) []part {
	parts := []part{{}, {}, {bound: o.exitWait}}
	if o.registrar != nil {
		parts[0].bound, parts[1].bound = o.deregister, o.window
		if o.deregister == 0 {
			parts[0] = part{bound: unlimited, reserve: defaultDeregisterBound}
		}
	}
	for i, p := range parts {
		parts[i].bound = min(p.bound, unlimited)
		if p.reserve == 0 {
			parts[i].reserve = parts[i].bound
		}
	}
	return parts
}

// skip drops the next n parts: their time goes to the ones that follow.
func (b *budget) skip(n int) {
	b.parts = b.parts[n:]
	b.exit -= n
}

// take returns the time of the next part.
func (b *budget) take(now time.Time) time.Duration {
	p, before := b.parts[0], b.exit
	b.skip(1)
	share := b.share(p, now)
	switch {
	case b.hurried.IsZero():
		return share
	case before > 0:
		return min(share, max(b.hurried.Add(hurry).Sub(now)/time.Duration(before), time.Millisecond))
	case p.hook:
		return min(share, hurriedHook)
	default:
		return 0
	}
}

func (b *budget) share(p part, now time.Time) time.Duration {
	if b.deadline.IsZero() {
		return p.bound
	}
	slack, hooks := b.deadline.Sub(now)-p.reserve, 1
	for _, later := range b.parts {
		slack -= later.reserve
		if later.hook {
			hooks++
		}
	}
	if p.hook { // never less than its reserve: a hook needs a live ctx
		return p.reserve + max(slack, 0)/time.Duration(hooks)
	}
	return min(p.bound, max(p.reserve+slack, 0))
}

// overbooked says which bounds do not fit in the stop timeout; "" if they do.
func overbooked(o *options) string {
	if o.stop == 0 {
		return ""
	}
	var sum time.Duration
	var texts []string
	for i, p := range fixedParts(o) {
		if p.reserve > 0 {
			sum += p.reserve
			texts = append(texts, fmt.Sprintf("%s %v", []string{"deregister", "propagation window", "exit wait"}[i], p.reserve))
		}
	}
	if sum <= o.stop {
		return ""
	}
	return fmt.Sprintf("app: StopTimeout(%v) cannot hold %s: each may be cut; raise it to %v or lower the parts",
		o.stop, strings.Join(texts, " + "), sum)
}
