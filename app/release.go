package app

import (
	"context"
	"errors"
	"net"
	"syscall"
	"time"
)

// release frees the sockets of servers that were bound but never started: Stop
// is the only way to tell them.
func (r *run) release() error {
	var errs []error
	for _, b := range r.bound {
		ctx, cancel := context.WithTimeout(r.base, leaveBehind)
		errs = append(errs, call(ctx, b.name+" Stop", patience{grace: stepGrace}, b.srv.Stop))
		cancel()
		if held(r.base, b.host) {
			r.startStopped(b)
		}
	}
	return join(errs...)
}

// startStopped calls Start on a stopped server. Kratos's servers, like net/http
// and grpc-go below them, take over their listener in Start only and, being
// stopped, close it and return at once. One that serves all the same is stopped
// again.
func (r *run) startStopped(b bound) {
	ended, end := context.WithCancel(r.base)
	end()
	ctx, cancel := context.WithTimeout(r.base, 2*stepGrace)
	defer cancel()
	err := call(ctx, b.name+" Start", patience{grace: stepGrace}, func(context.Context) error { return b.srv.Start(ended) })
	if errors.Is(err, ErrLeftBehind) {
		again, cancel := context.WithTimeout(r.base, leaveBehind)
		defer cancel()
		err = call(again, b.name+" Stop", patience{grace: stepGrace}, b.srv.Stop)
	}
	if held(r.base, b.host) {
		r.queue.emit(Event{Kind: Warning, Err: err, Text: "app: " + b.name + " was never started and keeps its port " + b.host})
	}
}

// held reports whether something listens on a TCP address of this host.
func held(ctx context.Context, host string) bool {
	var config net.ListenConfig
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	lis, err := config.Listen(ctx, "tcp", host)
	if err != nil {
		return errors.Is(err, syscall.EADDRINUSE)
	}
	_ = lis.Close()
	return false
}
