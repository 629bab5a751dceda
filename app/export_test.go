package app

import "os"

// Notify replaces signal.Notify: os/signal's goroutine cannot live in a bubble.
func Notify(fn func(chan<- os.Signal, ...os.Signal)) Option {
	return func(o *options) { o.notify = fn }
}
