// Package tools is the module of everything that builds and checks materpc and
// is no part of it: pinned tools (the tool lines of go.mod, run with
// "go tool -modfile=tools/go.mod NAME" from the root) and small programs of our
// own, protogen and snippets. Nothing of the core depends on it.
package tools
