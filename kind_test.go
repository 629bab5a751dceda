package materpc_test

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"

	"github.com/materpc/materpc"
)

// TestKindPrintsItsName: in logs a kind is its name; as an error it says whose
// it is.
func TestKindPrintsItsName(t *testing.T) {
	t.Parallel()
	const kind = materpc.ServerRefused
	for format, want := range map[string]string{
		"%v": "ServerRefused", "%s": "ServerRefused", "%q": `"ServerRefused"`, "%-15v|": "ServerRefused  |", "%d": "1",
	} {
		if got := fmt.Sprintf(format, kind); got != want {
			t.Errorf("%s prints %q, want %q", format, got, want)
		}
	}
	if got := kind.Error(); got != "materpc: ServerRefused" {
		t.Errorf("the error's text is %q", got)
	}
	if err := fmt.Errorf("shop: %w", kind); !errors.Is(err, kind) || materpc.KindOf(err) != kind {
		t.Errorf("%v is no longer of its kind", err)
	}
}

// TestKindInLogs: both handlers of slog, which print errors by their text.
func TestKindInLogs(t *testing.T) {
	t.Parallel()
	var text, object bytes.Buffer
	slog.New(slog.NewTextHandler(&text, nil)).Info("x", "kind", materpc.NoError)
	slog.New(slog.NewJSONHandler(&object, nil)).Info("x", "kind", materpc.NoError)
	if !strings.Contains(text.String(), "kind=NoError") || !strings.Contains(object.String(), `"kind":"NoError"`) {
		t.Errorf("logged %s%s", text.String(), object.String())
	}
}
