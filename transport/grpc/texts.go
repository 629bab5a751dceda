package grpc

import (
	"strings"

	stdgrpc "google.golang.org/grpc"
	"google.golang.org/grpc/status"
)

// unprocessedTexts are the messages of statuses that grpc-go makes when a
// stream was certainly not processed: RST_STREAM(REFUSED_STREAM), GOAWAY whose
// last stream is below ours, orphaned before HEADERS were written. There is no
// other sign of it in grpc-go's API (docs/decisions/0005). The contract
// tests pin them, one per way of refusing.
var unprocessedTexts = []string{
	"stream terminated by RST_STREAM with error code: REFUSED_STREAM",
	"the connection is draining",
	"transport is closing",
	"the stream is rejected because server is draining the connection", // the GOAWAY's, where Header asks first
}

// lostText reports whether the message is grpc-go's for a connection that
// ended. Behind a received header nothing else tells it from a peer's own
// Unavailable; neither moves by itself, so a forger gains nothing.
func lostText(message string) bool {
	return strings.HasPrefix(message, "error reading from server: ") ||
		strings.HasPrefix(message, "closing transport due to: ") ||
		strings.HasPrefix(message, "connection error: ")
}

// closedText reports whether the message is grpc-go's for a ClientConn that was
// closed under a running call.
func closedText(message string) bool {
	return message == status.Convert(stdgrpc.ErrClientConnClosing).Message() //nolint:staticcheck // the text itself is meant
}

// contentType is in the trailer of a response that is nothing but trailers, so
// that the status in it is the peer's own.
const contentType = "content-type"

// localSizeText reports whether our own grpc-go refused a message for its size.
func localSizeText(message string) bool {
	return strings.HasPrefix(message, "trying to send message larger than max") ||
		strings.HasPrefix(message, "grpc: received message larger than max") ||
		strings.HasPrefix(message, "grpc: received message after decompression larger than max")
}

// sizeText is the same text from the peer's grpc-go.
func sizeText(message string) bool {
	return strings.Contains(message, "message larger than max") || strings.Contains(message, "decompression larger than max")
}
