package health

import (
	"encoding/json"
	"net/http"
)

// readiness is the body of ReadyHandler.
type readiness struct {
	Status   string            `json:"status"`   // of "", the server as a whole
	Phase    string            `json:"phase"`    // of the lifecycle
	Services map[string]string `json:"services"` // every known name, "" included
	Checks   map[string]string `json:"checks"`   // last result of every check
}

// LiveHandler answers 200 as long as the process lives, in every phase: a
// draining process must not be killed by its liveness probe. Methods other than
// GET and HEAD get 405.
func (s *State) LiveHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if allowed(w, r) {
			respond(w, http.StatusOK, map[string]string{"status": "alive"})
		}
	})
}

// ReadyHandler answers 200 when "" is [Serving], else 503, with a JSON body that
// holds every name and check. It blocks as [State.List] does. Methods other
// than GET and HEAD get 405.
func (s *State) ReadyHandler() http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !allowed(w, r) {
			return
		}
		s.refresh(func(*check) bool { return true })
		body := s.readiness()
		code := http.StatusOK
		if body.Status != Serving.String() {
			code = http.StatusServiceUnavailable
		}
		respond(w, code, body)
	})
}

// readiness reads the whole table under one lock: code and body are one moment.
func (s *State) readiness() readiness {
	s.mu.Lock()
	defer s.mu.Unlock()
	body := readiness{
		Status:   s.statusLocked("").String(),
		Phase:    s.phase.String(),
		Services: make(map[string]string, len(s.known)),
		Checks:   make(map[string]string, len(s.checks)),
	}
	for name, st := range s.listLocked() {
		body.Services[name] = st.String()
	}
	for name, c := range s.checks {
		st := Serving
		if c.err != nil {
			st = NotServing
		}
		body.Checks[name] = st.String()
	}
	return body
}

func allowed(w http.ResponseWriter, r *http.Request) bool {
	if r.Method == http.MethodGet || r.Method == http.MethodHead {
		return true
	}
	w.Header().Set("Allow", "GET, HEAD")
	http.Error(w, "method not allowed", http.StatusMethodNotAllowed)
	return false
}

func respond(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // the prober has gone: nobody to tell
}
