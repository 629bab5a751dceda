package app_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestKratosAPIIsComplete compares `go doc -all` of Kratos's root package with
// ours: every function, method and type of it exists here, with its signature.
func TestKratosAPIIsComplete(t *testing.T) {
	theirs, ours := exported(t, "github.com/go-kratos/kratos/v2"), exported(t, "github.com/materpc/materpc/app")
	if len(theirs) < 30 {
		t.Errorf("only %d names found in Kratos: %v", len(theirs), theirs)
	}
	for _, line := range theirs {
		if !slices.Contains(ours, line) {
			t.Errorf("missing: %s", line)
		}
	}
}

// exported returns the declarations in go doc's output, without the names of
// results and whether a type is an alias.
func exported(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "doc", "-all", path).CombinedOutput()
	if err != nil {
		t.Fatalf("go doc %s: %v\n%s", path, err, out)
	}
	normal := strings.NewReplacer("(err error)", "error", "(s AppInfo, ok bool)", "(AppInfo, bool)", "(info AppInfo, ok bool)", "(AppInfo, bool)",
		"s AppInfo)", "info AppInfo)", "AppInfo interface {", "AppInfo", "AppInfo = kratos.AppInfo", "AppInfo")
	var names []string
	for line := range strings.Lines(string(out)) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "func ") || strings.HasPrefix(line, "type ") {
			names = append(names, normal.Replace(line))
		}
		if strings.HasPrefix(line, "const Release") {
			names = append(names, "const Release")
		}
	}
	return names
}
