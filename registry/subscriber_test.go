package registry

import (
	"testing"
	"testing/synctest"
)

func TestInvariant01CancelledSubscriberIsNeverCalled(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var calls int
		gate := make(chan struct{})
		s := &subscriber{fn: func(Snapshot) { <-gate; calls++ }, events: &Events{}}
		s.offer(Snapshot{})
		synctest.Wait() // the first call is under way
		s.offer(Snapshot{Answered: true})
		s.cancel() // the second one waits
		s.offer(Snapshot{})
		close(gate)
		synctest.Wait()
		if calls != 1 {
			t.Errorf("%d calls, want the one that had begun", calls)
		}
	})
}
