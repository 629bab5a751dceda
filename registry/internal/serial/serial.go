package serial

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
)

// Limit is how many jobs a Queue holds before it refuses further ones.
const Limit = 1024

// Queue runs jobs one after another, in the order given, on a goroutine that
// exists only while there is work. The zero value is ready. A job that panics
// or ends its goroutine (runtime.Goexit) does not stop the queue.
type Queue struct {
	mu      sync.Mutex
	jobs    []func()
	running bool
	idle    chan struct{}
}

// Do adds a job and returns at once; false means the queue was full and the
// job was dropped. Safe for concurrent use, also from inside a job.
func (q *Queue) Do(job func()) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) >= Limit {
		return false
	}
	q.jobs = append(q.jobs, job)
	if !q.running {
		q.running, q.idle = true, make(chan struct{})
		go q.run()
	}
	return true
}

// Wait blocks until the queue is idle or ctx ends, whose error it returns.
func (q *Queue) Wait(ctx context.Context) error {
	q.mu.Lock()
	idle, running := q.idle, q.running
	q.mu.Unlock()
	if !running {
		return nil
	}
	select {
	case <-idle:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (q *Queue) run() {
	finished := false
	defer func() {
		if !finished { // a job called Goexit: the rest still runs
			go q.run()
		}
	}()
	for {
		job := q.take()
		if job == nil {
			finished = true
			return
		}
		_ = Guard(job) // the owner of the job reports its panics
	}
}

func (q *Queue) take() func() {
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.jobs) == 0 {
		q.running, q.jobs = false, nil
		close(q.idle)
		return nil
	}
	job := q.jobs[0]
	q.jobs[0] = nil
	q.jobs = q.jobs[1:]
	return job
}

// Guard runs fn and returns its panic, if any, as a *PanicError.
func Guard(fn func()) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if value := recover(); value != nil {
			err = &PanicError{Value: value, Stack: debug.Stack()}
			return
		}
		err = ErrGoexit
	}()
	fn()
	returned = true
	return nil
}

// ErrGoexit is the outcome of a call that ended its goroutine.
var ErrGoexit = errors.New("the call ended its goroutine without an answer")

// PanicError is a recovered panic of code we do not own.
type PanicError struct {
	Value any
	Stack []byte
}

func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v", e.Value) }

// Unwrap returns the value of the panic when it is an error, else nil.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}
