package app

import "github.com/google/wire"

// Set provides an *App from a []Option.
var Set = wire.NewSet(New)
