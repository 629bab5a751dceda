// Command snippets keeps the code in Markdown files true: it fills fenced
// blocks from named regions of Go files that are compiled and tested.
//
//	go run -C tools ./snippets           fill
//	go run -C tools ./snippets -check    fail if a block differs
//
// A Markdown file names the region in a comment right above the block:
//
//	<!-- snippet: examples/hello/client/main.go dial -->
//	```go
//	```
//
// and the Go file marks it:
//
//	// region:dial
//	...
//	// endregion:dial
//
// Without a name the whole file is taken. Common indentation and inner markers
// are left out. All committed Markdown files are read; every fault is reported.
//
// Defaults: it fills. It runs no code, and leaves blocks without such a comment
// alone.
package main
