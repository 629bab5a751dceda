package shield

import (
	"errors"
	"time"
)

// Pushback is implemented by errors that carry the server's wish about further
// attempts: after how long the next may come, or that there be none. gRPC's
// trailer grpc-retry-pushback-ms is one. It is found through %w and errors.Join.
type Pushback interface {
	error
	Pushback() (delay time.Duration, stop bool)
}

// PushbackOf returns the wish that err carries, if any. Of several the
// first that errors.As finds counts.
func PushbackOf(err error) (delay time.Duration, stop, ok bool) {
	var p Pushback
	if err == nil || !errors.As(err, &p) {
		return 0, false, false
	}
	delay, stop = p.Pushback()
	return delay, stop, true
}
