// Package wire holds the fields that materpc itself sends: the request header
// and the proof trailers. It is pure text in, text out; transport/grpc moves
// the text.
//
//	header := wire.NewHeader("orders", nonce).String() // 1;orders;5f...
//	refusal, ok := wire.ParseProof(trailerValue)
//
// It decides nothing: what a proof means is written in transport/grpc.
package wire
