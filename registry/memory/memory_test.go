package memory_test

import (
	"testing"
	"time"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/memory"
	"github.com/materpc/materpc/registry/registrytest"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, registrytest.Backend{
		Name:   "memory",
		Bubble: true,
		Within: 200 * time.Millisecond,
		New: func(*testing.T) registrytest.Store {
			shared := memory.New()
			return registrytest.Store{Open: func(*testing.T) registry.Registry { return shared }}
		},
	})
}
