package health_test

import (
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/health"
)

// mirror keeps what watchers were told, to compare with the other readers.
type mirror struct {
	st     *health.State
	seen   map[string]*recorder
	cancel []func()
}

func newMirror(t *testing.T, st *health.State, names ...string) *mirror {
	t.Helper()
	m := &mirror{st: st, seen: make(map[string]*recorder)}
	for _, name := range names {
		m.seen[name] = &recorder{}
		m.cancel = append(m.cancel, st.Watch(name, m.seen[name].add))
	}
	return m
}

func (m *mirror) close() {
	for _, cancel := range m.cancel {
		cancel()
	}
}

// agree fails unless Check, List, Watch and both handlers say want.
func (m *mirror) agree(t *testing.T, step string, want map[string]health.Status) {
	t.Helper()
	synctest.Wait()
	if diff := cmp.Diff(want, m.st.List()); diff != "" {
		t.Errorf("%s: List (-want +got):\n%s", step, diff)
	}
	rec := httptest.NewRecorder()
	m.st.ReadyHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/readyz", nil))
	var body struct {
		Status   string
		Services map[string]string
	}
	if err := json.Unmarshal(rec.Body.Bytes(), &body); err != nil {
		t.Fatalf("%s: /readyz body: %v", step, err)
	}
	if (rec.Code == http.StatusOK) != (want[""] == health.Serving) {
		t.Errorf("%s: /readyz code %d, want[\"\"] %v", step, rec.Code, want[""])
	}
	if len(body.Services) != len(want) || body.Status != want[""].String() {
		t.Errorf("%s: /readyz body %+v", step, body)
	}
	for name, r := range m.seen {
		st, known := m.st.Check(name)
		wantStatus, wantKnown := want[name]
		if !wantKnown {
			wantStatus = health.ServiceUnknown
		}
		if st != wantStatus || known != wantKnown {
			t.Errorf("%s: Check(%q) = %v, %v; want %v, %v", step, name, st, known, wantStatus, wantKnown)
		}
		if got := r.last(); got != wantStatus {
			t.Errorf("%s: Watch(%q) last told %v, want %v", step, name, got, wantStatus)
		}
		if wantKnown && body.Services[name] != wantStatus.String() {
			t.Errorf("%s: /readyz %q = %s, want %v", step, name, body.Services[name], wantStatus)
		}
	}
	rec = httptest.NewRecorder()
	m.st.LiveHandler().ServeHTTP(rec, httptest.NewRequest(http.MethodGet, "/healthz", nil))
	if rec.Code != http.StatusOK {
		t.Errorf("%s: /healthz code %d, want 200", step, rec.Code)
	}
}

func TestInvariant07ReadersAgreeAfterEveryTransition(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const up, down = health.Serving, health.NotServing
		st := health.New()
		m := newMirror(t, st, "", "a", "b", "late")
		defer m.close()
		dbErr := errors.New("no route")
		db := &fakeCheck{}

		m.agree(t, "new", map[string]health.Status{"": down})
		st.Register("a", "b")
		m.agree(t, "registered", map[string]health.Status{"": down, "a": down, "b": down})
		st.Set("b", down)
		m.agree(t, "set b", map[string]health.Status{"": down, "a": down, "b": down})
		if err := st.AddCheck("db", db.run); err != nil {
			t.Fatal(err)
		}
		m.agree(t, "check added", map[string]health.Status{"": down, "a": down, "b": down})
		st.SetPhase(health.Ready)
		m.agree(t, "ready", map[string]health.Status{"": up, "a": up, "b": down})
		st.Register("late")
		m.agree(t, "late name", map[string]health.Status{"": up, "a": up, "b": down, "late": up})
		st.Set("b", up)
		m.agree(t, "b up", map[string]health.Status{"": up, "a": up, "b": up, "late": up})
		db.set(dbErr)
		time.Sleep(time.Second + time.Millisecond)
		m.agree(t, "db fails", map[string]health.Status{"": down, "a": down, "b": down, "late": down})
		db.set(nil)
		time.Sleep(time.Second + time.Millisecond)
		m.agree(t, "db back", map[string]health.Status{"": up, "a": up, "b": up, "late": up})
		st.Set("", down)
		m.agree(t, "all down", map[string]health.Status{"": down, "a": up, "b": up, "late": up})
		st.SetPhase(health.Draining)
		m.agree(t, "draining", map[string]health.Status{"": down, "a": down, "b": down, "late": down})
		st.Set("", up)
		m.agree(t, "set in drain", map[string]health.Status{"": down, "a": down, "b": down, "late": down})
		st.SetPhase(health.Ready)
		m.agree(t, "late Ready", map[string]health.Status{"": down, "a": down, "b": down, "late": down})
		st.SetPhase(health.Stopped)
		m.agree(t, "stopped", map[string]health.Status{"": down, "a": down, "b": down, "late": down})
		st.SetPhase(health.Starting)
		st.SetPhase(health.Ready)
		m.agree(t, "second life", map[string]health.Status{"": up, "a": up, "b": up, "late": up})
	})
}

func TestInvariant07SetSurvivesTheLifecycle(t *testing.T) {
	for _, before := range []health.Phase{health.Starting, health.Ready, health.Draining} {
		t.Run(before.String(), func(t *testing.T) {
			st := health.New()
			st.SetPhase(before)
			st.Set("svc", health.NotServing)
			for _, p := range []health.Phase{health.Ready, health.Draining, health.Stopped, health.Starting, health.Ready} {
				st.SetPhase(p)
				if got, known := st.Check("svc"); got != health.NotServing || !known {
					t.Errorf("phase %v: Check = %v, %v", p, got, known)
				}
			}
		})
	}
}

func TestSetTakesUndefinedValuesAsNotServing(t *testing.T) {
	st := health.New()
	st.SetPhase(health.Ready)
	for value, want := range map[health.Status]health.Status{
		health.ServiceUnknown: health.NotServing,
		health.Status(42):     health.NotServing,
		health.Status(-1):     health.NotServing,
		health.Unknown:        health.Unknown,
		health.Serving:        health.Serving,
	} {
		st.Set("svc", value)
		if got, known := st.Check("svc"); got != want || !known {
			t.Errorf("Set(%v): Check = %v, %v; want %v, true", value, got, known, want)
		}
	}
}

func TestCaseB60UnknownNames(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		st := health.New()
		st.SetPhase(health.Ready)
		if got, known := st.Check("nope"); known || got != health.ServiceUnknown {
			t.Errorf("Check(nope) = %v, %v; want SERVICE_UNKNOWN, false", got, known)
		}
		var r recorder
		cancel := st.Watch("nope", r.add)
		defer cancel()
		if diff := cmp.Diff([]health.Status{health.ServiceUnknown}, r.all()); diff != "" {
			t.Errorf("first message (-want +got):\n%s", diff)
		}
		st.Register("nope")
		synctest.Wait()
		if diff := cmp.Diff([]health.Status{health.ServiceUnknown, health.Serving}, r.all()); diff != "" {
			t.Errorf("after Register (-want +got):\n%s", diff)
		}
	})
}

func TestUndefinedPhaseChangesNothing(t *testing.T) {
	st := health.New()
	st.SetPhase(health.Ready)
	st.SetPhase(health.Phase(9))
	st.SetPhase(health.Phase(-3))
	if got := st.Phase(); got != health.Ready {
		t.Errorf("phase %v, want ready", got)
	}
}

func TestManagedContext(t *testing.T) {
	if health.Managed(t.Context()) {
		t.Error("a plain ctx is managed")
	}
	if !health.Managed(health.NewManagedContext(t.Context())) {
		t.Error("a managed ctx is not")
	}
}

func TestHandlersRefuseOtherMethods(t *testing.T) {
	st := health.New()
	for name, h := range map[string]http.Handler{"live": st.LiveHandler(), "ready": st.ReadyHandler()} {
		rec := httptest.NewRecorder()
		h.ServeHTTP(rec, httptest.NewRequest(http.MethodPost, "/", nil))
		if rec.Code != http.StatusMethodNotAllowed {
			t.Errorf("%s: POST = %d, want 405", name, rec.Code)
		}
	}
}
