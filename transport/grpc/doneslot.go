package grpc

import (
	"sync"
	"sync/atomic"

	"google.golang.org/grpc/balancer"
)

// doneSlot carries an attempt from the pick to grpc-go's Done. A method value of
// the attempt would cost an allocation a pick; a slot has its own for good and
// is used again once Done was called, which grpc-go does once a pick
// (csAttempt.finish, pickerWrapper.pick). A second Done finds the slot empty.
type doneSlot struct {
	attempt atomic.Pointer[attempt]
	pool    *sync.Pool
	done    func(balancer.DoneInfo)
}

// doneFunc returns the Done of a pick for a.
func (c *client) doneFunc(a *attempt) func(balancer.DoneInfo) {
	s, ok := c.doneSlots.Get().(*doneSlot)
	if !ok {
		s = &doneSlot{pool: &c.doneSlots}
		s.done = s.call
	}
	s.attempt.Store(a)
	return s.done
}

func (s *doneSlot) call(info balancer.DoneInfo) {
	if a := s.attempt.Swap(nil); a != nil {
		a.done(info)
		s.pool.Put(s)
	}
}
