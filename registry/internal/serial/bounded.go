package serial

import (
	"context"
	"sync"
)

// Bounded runs call on its own goroutine and waits for its answer until ctx
// ends; then answered is false, the error is ctx's, and the answer, should it
// ever come, goes to late (nil: dropped). A panic in call is
// its answer, as a *PanicError. The goroutine ends when call does: code that
// ignores its ctx for ever keeps it, and nothing can help that.
func Bounded[T any](ctx context.Context, call func() (T, error), late func(T, error)) (value T, answered bool, err error) {
	p := &pending[T]{answered: make(chan struct{}), late: late}
	go p.run(call)
	select {
	case <-p.answered:
	case <-ctx.Done():
	}
	return p.collect(ctx)
}

// pending is one call between its caller and its goroutine.
type pending[T any] struct {
	mu        sync.Mutex
	value     T
	err       error
	done      bool
	abandoned bool
	answered  chan struct{}
	late      func(T, error)
}

func (p *pending[T]) run(call func() (T, error)) {
	var (
		value T
		err   error
	)
	// Deferred, so that a call that ends its goroutine is answered as well.
	defer func() { p.settle(value, err) }()
	err = ErrGoexit
	if fault := Guard(func() { value, err = call() }); fault != nil {
		err = fault
	}
}

func (p *pending[T]) settle(value T, err error) {
	p.mu.Lock()
	p.value, p.err, p.done = value, err, true
	abandoned := p.abandoned
	p.mu.Unlock()
	close(p.answered)
	if abandoned && p.late != nil {
		_ = Guard(func() { p.late(value, err) })
	}
}

func (p *pending[T]) collect(ctx context.Context) (value T, answered bool, err error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.done {
		return p.value, true, p.err
	}
	p.abandoned = true
	return value, false, ctx.Err()
}
