package health

import "context"

type managedKey struct{}

// NewManagedContext returns a ctx that tells a server's Start that a lifecycle
// (package app) sets the phase of its health state, so the server must not.
func NewManagedContext(ctx context.Context) context.Context {
	return context.WithValue(ctx, managedKey{}, true)
}

// Managed reports whether ctx comes from [NewManagedContext]. A server started
// with a ctx that is not managed sets its own phase, else it never gets ready.
func Managed(ctx context.Context) bool {
	managed, _ := ctx.Value(managedKey{}).(bool)
	return managed
}
