// Command client calls stock.v1.Stock: a call that works, one that the business
// refuses, a stream. The text to it is docs/getting-started.md.
//
//	go run ./examples/stock/client
package main
