package app

import (
	"context"

	"github.com/go-kratos/kratos/v2"
)

// Release is the release of Kratos whose API this package has.
const Release = kratos.Release

// AppInfo is Kratos's: what hooks and servers may know about the app.
type AppInfo = kratos.AppInfo

var _ AppInfo = (*App)(nil)

// NewContext returns a ctx that carries info; kratos.FromContext reads it too.
func NewContext(ctx context.Context, info AppInfo) context.Context {
	return kratos.NewContext(ctx, info)
}

// FromContext returns the info in ctx, if any, also one put there by Kratos.
func FromContext(ctx context.Context) (info AppInfo, ok bool) {
	return kratos.FromContext(ctx)
}
