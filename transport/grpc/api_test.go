package grpc_test

import (
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// TestKratosAPIIsComplete compares `go doc -all` of Kratos's transport/grpc
// with ours: every function, method and type exists here with its signature,
// so that changing the import path compiles. NewWrappedStream is left out: its
// last parameter is of an internal type of Kratos.
func TestKratosAPIIsComplete(t *testing.T) {
	t.Parallel()
	theirs := exported(t, "github.com/go-kratos/kratos/v2/transport/grpc")
	ours := exported(t, "github.com/materpc/materpc/transport/grpc")
	if len(theirs) < 40 {
		t.Errorf("only %d names found in Kratos: %v", len(theirs), theirs)
	}
	for _, line := range theirs {
		if !slices.Contains(ours, line) && !strings.Contains(line, "NewWrappedStream") {
			t.Errorf("missing: %s", line)
		}
	}
}

// exported returns the declarations in go doc's output, without the names of
// parameters and results.
func exported(t *testing.T, path string) []string {
	t.Helper()
	out, err := exec.CommandContext(t.Context(), "go", "doc", "-all", path).CombinedOutput()
	if err != nil {
		t.Fatalf("go doc %s: %v\n%s", path, err, out)
	}
	normal := strings.NewReplacer("stdgrpc.", "grpc.", "kselector.", "selector.", "ktransport.", "transport.", "kregistry.", "registry.",
		"kmiddleware.", "middleware.", "klog.", "log.")
	var names []string
	for line := range strings.Lines(string(out)) {
		line = normal.Replace(strings.TrimSpace(line))
		if strings.HasPrefix(line, "func ") || strings.HasPrefix(line, "type ") {
			names = append(names, withoutNames(line))
		}
	}
	return names
}

// withoutNames drops the names of receivers, parameters and results.
func withoutNames(declaration string) string {
	var b strings.Builder
	for i, part := range strings.FieldsFunc(declaration, func(r rune) bool { return r == '(' || r == ')' }) {
		if i > 0 {
			b.WriteString("|")
		}
		var types []string
		for parameter := range strings.SplitSeq(part, ",") {
			fields := strings.Fields(parameter)
			if i > 0 && len(fields) > 1 {
				fields = fields[1:]
			}
			types = append(types, strings.Join(fields, " "))
		}
		b.WriteString(strings.Join(types, ","))
	}
	return strings.ReplaceAll(b.String(), "_ ", "")
}
