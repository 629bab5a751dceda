package health_test

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/health"
)

func TestWatchSeesACheckChangeWithoutAnyCheck(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		db := &fakeCheck{}
		if err := st.AddCheck("db", db.run); err != nil {
			t.Fatal(err)
		}
		st.SetPhase(health.Ready)
		var r recorder
		cancel := st.Watch("", r.add)
		if diff := cmp.Diff([]health.Status{health.Serving}, r.all()); diff != "" {
			t.Errorf("first (-want +got):\n%s", diff)
		}
		db.set(errors.New("down"))
		time.Sleep(time.Second + time.Millisecond)
		if got := r.last(); got != health.NotServing {
			t.Errorf("told %v after the check failed, want NOT_SERVING", got)
		}
		db.set(nil)
		time.Sleep(time.Second)
		if got := r.last(); got != health.Serving {
			t.Errorf("told %v after the check recovered, want SERVING", got)
		}

		cancel()
		cancel()
		before := db.count()
		time.Sleep(time.Minute)
		if got := db.count(); got != before {
			t.Errorf("%d runs without a watcher", got-before)
		}
	})
}

func TestWatchRunsChecksInReadyOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		db := &fakeCheck{}
		if err := st.AddCheck("db", db.run); err != nil {
			t.Fatal(err)
		}
		var r recorder
		defer st.Watch("", r.add)()
		time.Sleep(time.Minute)
		if db.count() != 0 {
			t.Errorf("%d runs before Ready", db.count())
		}
		st.SetPhase(health.Ready)
		time.Sleep(10*time.Second + time.Millisecond)
		if got := db.count(); got != 11 {
			t.Errorf("%d runs in 10 s, want 11", got)
		}
		st.SetPhase(health.Draining)
		before := db.count()
		time.Sleep(time.Minute)
		if got := db.count(); got != before {
			t.Errorf("%d runs in drain", got-before)
		}
		want := []health.Status{health.NotServing, health.Serving, health.NotServing}
		if diff := cmp.Diff(want, r.all()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

func TestInvariant12SlowOrPanickingWatcherDelaysNobody(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		var slow, good, bad recorder
		gate := make(chan struct{})
		defer st.Watch("", func(s health.Status) {
			slow.add(s)
			if len(slow.all()) == 2 {
				<-gate
			}
		})()
		defer st.Watch("", func(s health.Status) { bad.add(s); panic("boom") })()
		defer st.Watch("", good.add)()

		began := time.Now()
		for _, status := range []health.Status{health.NotServing, health.Serving, health.NotServing, health.Serving} {
			st.SetPhase(health.Ready)
			st.Set("", status)
			synctest.Wait()
		}
		if took := time.Since(began); took != 0 {
			t.Errorf("transitions took %v", took)
		}
		if good.last() != health.Serving || bad.last() != health.Serving {
			t.Errorf("good told %v, panicking told %v, want SERVING", good.last(), bad.last())
		}
		close(gate)
		synctest.Wait()
		if slow.last() != health.Serving {
			t.Errorf("slow told %v last, want the newest", slow.last())
		}
	})
}

func TestInvariant01CanceledWatchIsNotToldWhatWaited(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		var r recorder
		gate := make(chan struct{})
		cancel := st.Watch("", func(s health.Status) {
			r.add(s)
			if len(r.all()) == 2 {
				<-gate
			}
		})
		st.SetPhase(health.Ready)
		synctest.Wait()
		st.SetPhase(health.Draining)
		cancel()
		close(gate)
		synctest.Wait()
		want := []health.Status{health.NotServing, health.Serving}
		if diff := cmp.Diff(want, r.all()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

func TestInvariant01ResultOfAnEarlierLifeDoesNotCount(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		db := &fakeCheck{}
		if err := st.AddCheck("db", db.run); err != nil {
			t.Fatal(err)
		}
		st.SetPhase(health.Ready)
		if !serving(st, "") {
			t.Error("not serving")
		}
		st.SetPhase(health.Starting)
		db.set(errors.New("down"))
		var r recorder
		defer st.Watch("", r.add)()
		st.SetPhase(health.Ready)
		synctest.Wait()
		if diff := cmp.Diff([]health.Status{health.NotServing}, r.all()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
	})
}

func TestWatchCancelFromInsideAndAfter(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		var r recorder
		var cancel func()
		cancel = st.Watch("", func(s health.Status) {
			r.add(s)
			if cancel != nil {
				cancel()
			}
		})
		st.SetPhase(health.Ready)
		synctest.Wait()
		st.SetPhase(health.Draining)
		synctest.Wait()
		want := []health.Status{health.NotServing, health.Serving}
		if diff := cmp.Diff(want, r.all()); diff != "" {
			t.Errorf("told (-want +got):\n%s", diff)
		}
		st.Watch("", nil)()
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
	})
}
