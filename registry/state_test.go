package registry

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestStateMachineIsTheDocumentedOne(t *testing.T) {
	t.Parallel()
	names := map[step]string{
		start: "start", landed: "landed", refuted: "refuted", unanswered: "unanswered",
		withdraw: "withdraw", gone: "gone", lost: "lost", replaced: "replaced",
	}
	var got strings.Builder
	for s := Idle; s <= Replaced; s++ {
		for what := start; what <= replaced; what++ {
			if next, ok := s.after(what); ok {
				fmt.Fprintf(&got, "%s %s > %s\n", s, names[what], next)
			} else if next != s {
				t.Errorf("%s %s is refused and moves to %s", s, names[what], next)
			}
		}
	}
	want := strings.TrimLeft(`
idle start > registering
idle withdraw > withdrawn
registering landed > registered
registering refuted > failed
registering unanswered > unconfirmed
registering withdraw > withdrawing
registered withdraw > withdrawing
registered replaced > replaced
unconfirmed refuted > failed
unconfirmed withdraw > withdrawing
unconfirmed gone > withdrawn
withdrawing refuted > failed
withdrawing gone > withdrawn
withdrawing lost > unconfirmed
`, "\n")
	if diff := cmp.Diff(want, got.String()); diff != "" {
		t.Errorf("transitions (-want +got):\n%s", diff)
	}
}

func TestInvariant01TerminalStateHasNoWayOut(t *testing.T) {
	t.Parallel()
	for _, s := range []State{Withdrawn, Failed, Replaced} {
		if !s.Terminal() {
			t.Errorf("%s is not terminal", s)
		}
		for what := start; what <= replaced; what++ {
			if next, ok := s.after(what); ok || next != s {
				t.Errorf("%s leads to %s", s, next)
			}
		}
	}
}

func TestEveryEventKindHasAName(t *testing.T) {
	t.Parallel()
	for kind := RecordSkipped; kind <= RecordContested; kind++ {
		if strings.HasPrefix(kind.String(), "event ") {
			t.Errorf("kind %d has no name", int(kind))
		}
	}
	if len(eventNames) != int(RecordContested) {
		t.Errorf("%d names for %d kinds", len(eventNames), int(RecordContested))
	}
}
