package registry_test

import (
	"testing"

	"github.com/materpc/materpc/registry"
)

func TestFromEnvironment(t *testing.T) {
	t.Setenv(registry.Variable, "")
	if got := registry.FromEnvironment("local"); got != "local" {
		t.Errorf("without the variable: %q", got)
	}
	t.Setenv(registry.Variable, "local:///srv/registry")
	if got := registry.FromEnvironment("local"); got != "local:///srv/registry" {
		t.Errorf("with it: %q", got)
	}
}
