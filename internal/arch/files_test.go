package arch_test

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// maxLines is the length past which a file holds more than one idea.
const maxLines = 600

var generated = regexp.MustCompile(`(?m)^// Code generated .* DO NOT EDIT\.$`)

// TestFileLength reads every Go file of the repository, nested modules too.
func TestFileLength(t *testing.T) {
	seen := 0
	err := filepath.WalkDir("../..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && (entry.Name() == "testdata" || entry.Name() == ".git") {
			return filepath.SkipDir
		}
		if entry.IsDir() || filepath.Ext(path) != ".go" {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		seen++
		if lines := bytes.Count(text, []byte("\n")); lines > maxLines && !generated.Match(text) {
			t.Errorf("%s has %d lines, more than %d: split it by nouns", filepath.ToSlash(path), lines, maxLines)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if seen == 0 {
		t.Fatal("no Go file found")
	}
}

// TestPackageDocs wants a doc.go in each library package and a comment on each
// command, so that "go doc" says what it is before what it has.
func TestPackageDocs(t *testing.T) {
	for _, p := range load(t).packages {
		if strings.TrimSpace(p.Doc) == "" {
			t.Errorf("%s has no package comment", p.short())
		}
		if p.Name != "main" && !slices.Contains(p.GoFiles, "doc.go") {
			t.Errorf("%s has no doc.go", p.short())
		}
	}
}
