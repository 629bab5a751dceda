// Package stockv1 is the generated code of stock.v1.Stock, the service that
// docs/getting-started.md builds. "make gen" writes it anew from stock.proto.
package stockv1
