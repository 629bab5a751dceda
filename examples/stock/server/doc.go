// Command server runs stock.v1.Stock: all that a service of one's own needs. The
// text to it is docs/getting-started.md.
//
//	go run ./examples/stock/server
//
// It takes a free port and registers in the user's own local registry.
package main
