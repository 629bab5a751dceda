// Package serial runs code that we do not own: one job after another without
// a standing goroutine (Queue), with its panics caught (Guard), and for no
// longer than a ctx allows (Bounded).
//
//	var queue serial.Queue
//	queue.Do(func() { callback(event) })
//
// It is not a worker pool: a Queue never runs two jobs at once.
package serial
