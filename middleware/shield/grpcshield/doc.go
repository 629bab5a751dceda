// Package grpcshield puts shields around the calls of a plain gRPC client.
package grpcshield
