package grpcshield

import (
	"strconv"
	"time"

	"google.golang.org/grpc/metadata"

	"github.com/materpc/materpc/middleware/shield"
)

// pushbackKey is the trailer of
// https://github.com/grpc/proposal/blob/master/A6-client-retries.md#pushback.
const pushbackKey = "grpc-retry-pushback-ms"

// pushback reads a server's wish. One number from 0 to 2^31-1 is a delay in
// milliseconds; whatever else is there means no further attempt.
func pushback(trailer metadata.MD) (delay time.Duration, stop, ok bool) {
	values := trailer[pushbackKey]
	if len(values) == 0 {
		return 0, false, false
	}
	ms, err := strconv.ParseInt(values[0], 10, 32)
	if len(values) > 1 || err != nil || ms < 0 {
		return 0, true, true
	}
	return time.Duration(ms) * time.Millisecond, false, true
}

// wished puts the wish of a failed attempt beside its error. After a stop, each
// later failure of the same call, of a hedge that is already under way, is the
// last one too.
func wished(err error, trailer metadata.MD, stopped *bool) error {
	delay, stop, ok := pushback(trailer)
	*stopped = *stopped || stop
	if _, is := err.(*shield.Wished); is || !ok && !*stopped { //nolint:errorlint // see Wished
		return err
	}
	return &shield.Wished{Err: err, Delay: delay, Stop: *stopped, Final: false}
}
