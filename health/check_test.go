package health_test

import (
	"context"
	"errors"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/health"
)

type fakeCheck struct {
	mu   sync.Mutex
	err  error
	runs int
}

func (c *fakeCheck) set(err error) { c.mu.Lock(); defer c.mu.Unlock(); c.err = err }
func (c *fakeCheck) count() int    { c.mu.Lock(); defer c.mu.Unlock(); return c.runs }

func (c *fakeCheck) run(context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.runs++
	return c.err
}

type recorder struct {
	mu   sync.Mutex
	list []health.Status
}

func (r *recorder) add(st health.Status) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.list = append(r.list, st)
}

func (r *recorder) all() []health.Status {
	r.mu.Lock()
	defer r.mu.Unlock()
	return append([]health.Status(nil), r.list...)
}

func (r *recorder) last() health.Status { l := r.all(); return l[len(l)-1] }

func serving(st *health.State, name string) bool {
	got, known := st.Check(name)
	return known && got == health.Serving
}

func TestAddCheckReportsAllFaultsAtOnce(t *testing.T) {
	st := health.New()
	st.SetPhase(health.Ready)
	err := st.AddCheck("", nil, health.Interval(-time.Second), health.Timeout(0))
	if err == nil {
		t.Fatal("no error")
	}
	for _, part := range []string{"empty name", "nil function", "interval -1s", "timeout 0s"} {
		if !strings.Contains(err.Error(), part) {
			t.Errorf("error %q does not say %q", err, part)
		}
	}
	ok := func(context.Context) error { return nil }
	if err := st.AddCheck("db", ok); err != nil {
		t.Fatal(err)
	}
	if err := st.AddCheck("db", func(context.Context) error { return errors.New("x") }); err == nil {
		t.Error("a taken name is accepted")
	}
	if !serving(st, "") {
		t.Error("rejected checks changed the state")
	}
}

func TestCheckIsCachedAndSingleFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		var runs atomic.Int32
		slow := func(context.Context) error { runs.Add(1); time.Sleep(300 * time.Millisecond); return nil }
		if err := st.AddCheck("db", slow); err != nil {
			t.Fatal(err)
		}
		if serving(st, "") || runs.Load() != 0 {
			t.Error("a check ran, or counted, before Ready")
		}
		st.SetPhase(health.Ready)
		var group sync.WaitGroup
		for range 10 {
			group.Go(func() {
				if !serving(st, "") {
					t.Error("Check did not wait for the run")
				}
			})
		}
		group.Wait()
		st.List()
		if got := runs.Load(); got != 1 {
			t.Errorf("%d runs, want 1", got)
		}
		time.Sleep(time.Second)
		st.List()
		if got := runs.Load(); got != 2 {
			t.Errorf("%d runs after the interval, want 2", got)
		}
	})
}

func TestInvariant12HangingCheckHoldsOneGoroutineAndNoCaller(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		release := make(chan struct{})
		var runs atomic.Int32
		hang := func(context.Context) error { runs.Add(1); <-release; return nil }
		if err := st.AddCheck("db", hang, health.Timeout(200*time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		st.SetPhase(health.Ready)
		began := time.Now()
		if serving(st, "") {
			t.Error("a hanging check is passing")
		}
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("the first Check took %v, want the timeout", took)
		}
		for range 20 {
			began := time.Now()
			if serving(st, "") {
				t.Error("a hanging check is passing")
			}
			if took := time.Since(began); took != 0 {
				t.Fatalf("a later Check took %v, want 0", took)
			}
			time.Sleep(time.Second)
		}
		if got := runs.Load(); got != 1 {
			t.Errorf("%d goroutines, want 1", got)
		}
		if err := st.Checks()["db"]; !errors.Is(err, health.ErrCheckTimeout) {
			t.Errorf("result %v, want ErrCheckTimeout", err)
		}
		if err := st.Close(); !errors.Is(err, health.ErrLeftBehind) || !strings.Contains(err.Error(), "[db]") {
			t.Errorf("Close = %v, want ErrLeftBehind naming db", err)
		}
		close(release)
		synctest.Wait()
		if err := st.Close(); err != nil {
			t.Errorf("second Close = %v", err)
		}
	})
}

func TestInvariant01LateAnswerChangesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		release := make(chan struct{})
		if err := st.AddCheck("db", func(context.Context) error { <-release; return nil }); err != nil {
			t.Fatal(err)
		}
		st.SetPhase(health.Ready)
		st.List()
		close(release)
		synctest.Wait()
		if err := st.Checks()["db"]; !errors.Is(err, health.ErrCheckTimeout) {
			t.Errorf("a late answer became the result: %v", err)
		}
		time.Sleep(time.Second)
		if !serving(st, "") {
			t.Error("the check does not recover")
		}
	})
}

func TestInvariant12PanickingCheckIsFailing(t *testing.T) {
	st := health.New()
	if err := st.AddCheck("db", func(context.Context) error { panic("boom") }); err != nil {
		t.Fatal(err)
	}
	st.SetPhase(health.Ready)
	if serving(st, "") {
		t.Error("a panicking check is passing")
	}
	if err := st.Checks()["db"]; !errors.Is(err, health.ErrCheckPanic) || !strings.Contains(err.Error(), "boom") {
		t.Errorf("result %v", err)
	}
}

func TestCheckConcernsItsServicesOnly(t *testing.T) {
	st := health.New()
	st.Register("a", "b")
	bad := func(context.Context) error { return errors.New("x") }
	if err := st.AddCheck("db", bad, health.Services("a")); err != nil {
		t.Fatal(err)
	}
	st.SetPhase(health.Ready)
	want := map[string]health.Status{"": health.Serving, "a": health.NotServing, "b": health.Serving}
	if diff := cmp.Diff(want, st.List()); diff != "" {
		t.Errorf("List (-want +got):\n%s", diff)
	}
}

func TestCloseCancelsRunsAndKeepsResults(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		var runs atomic.Int32
		polite := func(ctx context.Context) error {
			if runs.Add(1) == 1 {
				return nil
			}
			<-ctx.Done()
			return ctx.Err()
		}
		if err := st.AddCheck("db", polite); err != nil {
			t.Fatal(err)
		}
		st.SetPhase(health.Ready)
		if !serving(st, "") {
			t.Error("not serving")
		}
		time.Sleep(2 * time.Second)
		go st.Check("")
		synctest.Wait()
		if err := st.Close(); err != nil {
			t.Errorf("Close = %v", err)
		}
		if !serving(st, "") {
			t.Error("a run that Close cancelled became the result")
		}
	})
}
