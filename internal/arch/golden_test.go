package arch_test

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

const golden = "testdata/imports.golden"

var update = flag.Bool("update", false, "write "+golden+" anew")

// TestImportsGolden compares the import graph with the reviewed one.
func TestImportsGolden(t *testing.T) {
	got := describe(load(t))
	if *update {
		if err := os.WriteFile(golden, []byte(got), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(golden)
	if err != nil {
		t.Fatal(err)
	}
	reviewed, now := edges(string(want)), edges(got)
	for _, edge := range reviewed {
		if !slices.Contains(now, edge) {
			t.Errorf("gone: %s", edge)
		}
	}
	for _, edge := range now {
		if !slices.Contains(reviewed, edge) {
			t.Errorf("new: %s", edge)
		}
	}
	if t.Failed() {
		t.Log("if on purpose: go test ./internal/arch -update, and say why in the change")
	}
}

// edges lists a description as one line an edge, so that a difference reads by
// itself; a package alone is an edge too.
func edges(text string) []string {
	var lines []string
	from := ""
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch to, inner := strings.CutPrefix(line, "\t"); {
		case line == "" || strings.HasPrefix(line, "#"):
		case !inner:
			from = line
			lines = append(lines, from)
		default:
			lines = append(lines, from+" -> "+strings.TrimPrefix(to, "> "))
		}
	}
	return lines
}

// describe writes one paragraph a package: what it imports of ours, then the
// third-party modules it reaches, directly or not.
func describe(t *tree) string {
	var text strings.Builder
	text.WriteString("# Packages of the module, what each imports of it, and (>) the other modules it reaches.\n")
	text.WriteString("# Written by: go test ./internal/arch -update\n")
	for _, p := range t.packages {
		fmt.Fprintf(&text, "\n%s\n", p.short())
		for _, path := range t.imports(p) {
			fmt.Fprintf(&text, "\t%s\n", path)
		}
		for _, path := range t.reaches(p) {
			fmt.Fprintf(&text, "\t> %s\n", path)
		}
	}
	return text.String()
}
