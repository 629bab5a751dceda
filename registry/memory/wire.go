package memory

import (
	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/wire"
)

// ProviderSet provides a registry of the process, also as Kratos's Registrar
// and Discovery.
var ProviderSet = wire.NewSet(New,
	wire.Bind(new(kregistry.Registrar), new(*Registry)), wire.Bind(new(kregistry.Discovery), new(*Registry)))
