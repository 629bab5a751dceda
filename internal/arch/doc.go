// Package arch holds the shape of the module as tests: who may import whom, how
// large a file may be, and that each package says what it is. It has no code of
// its own.
//
// The import graph is written down in testdata/imports.golden, with the
// third-party modules that each package reaches, so that a new edge or a new
// dependency is seen in review. After a change on purpose:
//
//	go test ./internal/arch -update
//
// Rules stand in rules_test.go; a golden file cannot be updated past them.
package arch
