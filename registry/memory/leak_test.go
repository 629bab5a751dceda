package memory

import (
	"testing"
	"testing/synctest"
)

func TestStoppedWatchersLeaveNothing(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		r := New()
		for range 1000 {
			w, err := r.Watch(t.Context(), "user")
			if err != nil {
				t.Fatal(err)
			}
			if err := w.Stop(); err != nil {
				t.Fatal(err)
			}
		}
		synctest.Wait()
		r.mu.Lock()
		defer r.mu.Unlock()
		if len(r.services) != 0 {
			t.Errorf("left: %v", r.services)
		}
	})
}
