package main

import (
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"
)

// TestOne wants a check to report a stale block and change nothing, a fill to
// mend it, and a check after that to pass.
func TestOne(t *testing.T) {
	files := fstest.MapFS{"x/main.go": {Data: []byte(source)}}
	path := filepath.Join(t.TempDir(), "p.md")
	stale := "<!-- snippet: x/main.go inner -->\n```go\nold\n```\n"
	if err := os.WriteFile(path, []byte(stale), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := one(files, path, "p.md", true); err == nil {
		t.Error("a stale block passed the check")
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != stale {
		t.Errorf("the check changed the file to %q, %v", text, err)
	}
	if err := one(files, path, "p.md", false); err != nil {
		t.Error(err)
	}
	if err := one(files, path, "p.md", true); err != nil {
		t.Errorf("after filling: %v", err)
	}
}
