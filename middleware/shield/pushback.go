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

// Wished is the error of work that says what the server wished about further
// attempts beside the error, not in it. A shield takes it off: clauses, hooks
// and the caller see Err itself, while all layers of the shield, and a [Backoff]
// through [Outcome.Pushback], know of the wish.
type Wished struct {
	Err   error
	Delay time.Duration
	Stop  bool
	// Final says that nothing may repeat the work, whatever a layer makes of
	// wishes: the caller has already seen a part of its outcome.
	Final bool
}

func (w *Wished) Error() string { return w.Err.Error() }

// Unwrap returns the error.
func (w *Wished) Unwrap() error { return w.Err }

// Pushback implements [Pushback].
func (w *Wished) Pushback() (delay time.Duration, stop bool) { return w.Delay, w.Stop || w.Final }

// separate takes the wish off an error.
func separate(err error) (*Wished, error) {
	if err == nil {
		return nil, nil
	}
	if w, ok := err.(*Wished); ok && w != nil { //nolint:errorlint // one further in stays where its owner has put it
		return w, w.Err
	}
	return nil, err
}

// Pushback returns the server's wish about further attempts, if there is one:
// that of [Wished], else what the error carries.
func (o Outcome) Pushback() (delay time.Duration, stop, ok bool) {
	if o.wished == nil {
		return PushbackOf(o.Err)
	}
	delay, stop = o.wished.Pushback()
	return delay, stop, true
}

// pushback is Pushback for a layer that may not care.
func (o Outcome) pushback(ignore bool) (delay time.Duration, stop, ok bool) {
	if ignore {
		final := o.wished != nil && o.wished.Final
		return 0, final, final
	}
	return o.Pushback()
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
