package local

import (
	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/wire"
)

// ProviderSet provides the registry of a [Directory], also as Kratos's
// Registrar and Discovery.
var ProviderSet = wire.NewSet(ProvideRegistry,
	wire.Bind(new(kregistry.Registrar), new(*Registry)), wire.Bind(new(kregistry.Discovery), new(*Registry)))

// Directory is what [New] takes; "" is the user's own.
type Directory string

// ProvideRegistry is [New] in wire's shape: the cleanup is Close.
func ProvideRegistry(dir Directory) (*Registry, func(), error) {
	r, err := New(string(dir))
	if err != nil {
		return nil, nil, err
	}
	return r, func() { _ = r.Close() }, nil // its records are withdrawn by the app; Close only stops readers
}
