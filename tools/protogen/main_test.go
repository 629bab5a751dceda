package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestGenerate compiles two files, one importing the other, and wants messages
// of both and the service of one, with their comments.
func TestGenerate(t *testing.T) {
	root := t.TempDir()
	put(t, root, "part/v1/part.proto", `syntax = "proto3";
package part.v1;
option go_package = "example.test/part/v1;partv1";
// Part is a part.
message Part { string name = 1; }
`)
	put(t, root, "whole/v1/whole.proto", `syntax = "proto3";
package whole.v1;
import "part/v1/part.proto";
import "google/protobuf/duration.proto";
option go_package = "example.test/whole/v1;wholev1";
message Whole { part.v1.Part part = 1; google.protobuf.Duration age = 2; }
service Maker { rpc Make(part.v1.Part) returns (Whole); }
`)
	if err := generate(t.Context(), root); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"part/v1/part.pb.go":        "// Part is a part.\ntype Part struct",
		"whole/v1/whole.pb.go":      `v1 "example.test/part/v1"`,
		"whole/v1/whole_grpc.pb.go": "type MakerServer interface",
	} {
		text, err := os.ReadFile(filepath.Join(root, name))
		if err != nil {
			t.Error(err)
		} else if !strings.Contains(string(text), want) {
			t.Errorf("%s has no %q", name, want)
		}
	}
}

// TestGenerateNamesTheFault wants a fault's file and line.
func TestGenerateNamesTheFault(t *testing.T) {
	broken, empty := t.TempDir(), t.TempDir()
	put(t, broken, "a.proto", "syntax = \"proto3\";\nmessage {\n")
	for root, want := range map[string]string{broken: "a.proto:2:", empty: "no .proto file"} {
		err := generate(t.Context(), root)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want one with %q", err, want)
		}
	}
}

// TestRunTakesFoldersOfOtherProjects: an absolute root is not looked for in the
// repository.
func TestRunTakesFoldersOfOtherProjects(t *testing.T) {
	root := t.TempDir()
	put(t, root, "a.proto", "syntax = \"proto3\";\npackage a;\noption go_package = \"example.test/a\";\nmessage A {}\n")
	if err := run(t.Context(), []string{root}); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(root, "a.pb.go")); err != nil {
		t.Error(err)
	}
}

func put(t *testing.T, root, name, text string) {
	t.Helper()
	path := filepath.Join(root, filepath.FromSlash(name))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}
