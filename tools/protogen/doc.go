// Command protogen generates Go code from .proto files without protoc.
//
//	go run -C tools ./protogen DIR...
//
// Each DIR, absolute or relative to the repository's root, is an import root: all
// .proto files below it are compiled in this process and the generated files are
// written beside them. So a clone of this repository also generates for a
// project beside it:
//
//	go run -C tools ./protogen "$PWD/../yours/api"
//
// The plugins are the two pinned in tools/go.mod. Output
// depends on the .proto files and on those pins alone; see
// docs/decisions/0002-protogen.md.
//
// Defaults: none; without a DIR it is an error that says so. It is no protoc:
// it has no options and knows no other plugins.
package main
