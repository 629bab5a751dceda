package materpc

import (
	"context"
	"sync"
)

// hooks holds what a call runs at its end. Most calls have none, so it is
// allocated on first use.
type hooks struct {
	mu          sync.Mutex
	finish      []func(error)
	after       []func(context.Context)
	finishDone  bool
	afterClosed bool
}

// list returns the call's hooks, making them when there are none.
func (r *RPCInfo) list() *hooks {
	if h := r.hooks.Load(); h != nil {
		return h
	}
	over := r.state.Load() == finished
	h := &hooks{finishDone: over, afterClosed: over}
	if r.hooks.CompareAndSwap(nil, h) {
		// The call may have finished in between, without seeing the list: then
		// nobody will run what it would take.
		if r.state.Load() == finished {
			h.close()
		}
		return h
	}
	return r.hooks.Load()
}

// addFinish reports false when the call's finish has already run its hooks.
func (h *hooks) addFinish(fn func(error)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.finishDone {
		return false
	}
	h.finish = append(h.finish, fn)
	return true
}

func (h *hooks) close() {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finishDone, h.afterClosed = true, true
}

func (h *hooks) takeFinish() []func(error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.finishDone = true
	taken := h.finish
	h.finish = nil
	return taken
}

// addAfter reports false when the call no longer takes such functions.
func (h *hooks) addAfter(fn func(context.Context)) bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.afterClosed {
		return false
	}
	h.after = append(h.after, fn)
	return true
}

// takeAfter returns the functions to run and closes the list when there are
// none left, so that one registered by another still runs.
func (h *hooks) takeAfter() []func(context.Context) {
	h.mu.Lock()
	defer h.mu.Unlock()
	taken := h.after
	h.after = nil
	h.afterClosed = len(taken) == 0
	return taken
}

// guard runs code that we do not own.
func guard(fn func()) {
	defer func() { _ = recover() }()
	fn()
}
