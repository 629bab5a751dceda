package arch_test

import (
	"flag"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
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
	if diff := cmp.Diff(strings.Split(string(want), "\n"), strings.Split(got, "\n")); diff != "" {
		t.Errorf("imports changed (-reviewed +now); if on purpose: go test ./internal/arch -update, and say why in the change\n%s", diff)
	}
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
