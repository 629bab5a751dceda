package arch_test

import (
	"slices"
	"strings"
	"testing"
)

// foundation is what every other part stands on. It imports nothing above it.
var foundation = []string{".", "health", "registry", "internal/..."}

// layer is one row: a place in the tree and what may be imported from there.
type layer struct {
	place string
	may   []string
}

// layers say, for each place in the tree, what its packages may import of the
// module beside their own folder. The first row that matches a package decides.
// "x" is the package x, "x/..." all below it.
var layers = []layer{
	{"internal/...", foundation},
	{".", foundation},
	{"health", foundation},
	{"registry", foundation},

	// One idea a folder, none knows its siblings or a transport.
	{"registry/...", foundation},
	{"selector", foundation},
	{"selector/...", with(foundation, "selector")},
	{"middleware/shield", nil},
	{"middleware/shield/grpcshield", nil}, // and the engine, which is its own folder

	// The lifecycle knows servers by their interface.
	{"app", foundation},

	// The one place that knows them all.
	{"transport/...", with(foundation, "registry/...", "selector", "selector/...", "middleware/...", "transport/...")},

	// Examples use the module as a user does.
	{"examples/...", []string{"..."}},
}

// banned are packages that no file of the module imports, tests included.
var banned = map[string]string{
	"google.golang.org/grpc/balancer/base":             "its picker is rebuilt on every readiness flip; transport/grpc has its own balancer",
	"google.golang.org/grpc/balancer/endpointsharding": "one child balancer an endpoint costs what the instance table saves",
	"github.com/stretchr/testify/assert":               "tests use testing and go-cmp",
	"github.com/stretchr/testify/require":              "tests use testing and go-cmp",
}

// reachLimits name packages that must stay usable without a heavy dependency:
// none of the modules may be reached. "*" is any third-party module.
var reachLimits = map[string]string{
	"middleware/shield":            "*",
	"middleware/shield/grpcshield": "github.com/go-kratos/kratos/v2",
	"health":                       "google.golang.org/grpc",
	"internal/...":                 "google.golang.org/grpc",
}

// TestLayers checks each edge of the import graph.
func TestLayers(t *testing.T) {
	tree := load(t)
	for _, p := range tree.packages {
		row, ok := rowOf(p.short())
		if !ok {
			t.Errorf("%s has no place in the layers: add its row to rules_test.go and its line to docs/architecture.md", p.short())
			continue
		}
		for _, path := range tree.imports(p) {
			if !allowed(p.short(), path, row.may) {
				t.Errorf("%s imports %s; a package at %q may import only %v", p.short(), path, row.place, row.may)
			}
		}
	}
}

// TestLayersExist wants a package for each row: a package brings its own.
func TestLayersExist(t *testing.T) {
	tree := load(t)
	for _, row := range layers {
		if !slices.ContainsFunc(tree.packages, func(p *pkg) bool { return matches(row.place, p.short()) }) {
			t.Errorf("no package is at %q: take its row out of rules_test.go", row.place)
		}
	}
}

// TestBannedImports checks every import, also those of tests.
func TestBannedImports(t *testing.T) {
	for _, p := range load(t).packages {
		for _, path := range slices.Concat(p.Imports, p.TestImports, p.XTestImports) {
			if why, ok := banned[path]; ok {
				t.Errorf("%s imports %s: %s", p.short(), path, why)
			}
		}
	}
}

// TestReach checks what a package brings along.
func TestReach(t *testing.T) {
	tree := load(t)
	for _, p := range tree.packages {
		for place, limit := range reachLimits {
			if !matches(place, p.short()) {
				continue
			}
			for _, path := range tree.reaches(p) {
				if limit == "*" || limit == path {
					t.Errorf("%s reaches %s and must not", p.short(), path)
				}
			}
		}
	}
}

// TestAllowed shows that the rules bite.
func TestAllowed(t *testing.T) {
	for _, c := range []struct {
		from, path string
		want       bool
	}{
		{"registry", "internal/backoff", true},
		{"registry", "registry/local", false},
		{"registry/local", "registry", true},
		{"registry/local", "registry/local/internal/record", true},
		{"registry/local", "registry/memory", false},
		{"registry/local", "registry/internal/serial", true},
		{"selector", "registry/internal/serial", false},
		{"selector/p2c", "selector", true},
		{"selector/p2c", "selector/wrr", false},
		{"selector/p2c", "transport/grpc", false},
		{"middleware/shield", "health", false},
		{"middleware/shield/grpcshield", "middleware/shield", true},
		{"middleware/shield/grpcshield", "transport/grpc", false},
		{"internal/wire", "selector", false},
		{"health", "app", false},
		{"app", "transport/grpc", false},
		{"app", "health", true},
		{"transport/grpc", "selector/p2c", true},
		{"transport/grpc", "app", false},
		{"transport/grpc", "examples/hello/api/hello/v1", false},
		{"examples/quickstart", "app", true},
	} {
		row, ok := rowOf(c.from)
		if !ok {
			t.Fatalf("%s has no row", c.from)
		}
		if got := allowed(c.from, c.path, row.may); got != c.want {
			t.Errorf("allowed(%s imports %s) = %v, want %v", c.from, c.path, got, c.want)
		}
	}
}

// rowOf finds the first row that a package falls under.
func rowOf(path string) (layer, bool) {
	i := slices.IndexFunc(layers, func(l layer) bool { return matches(l.place, path) })
	if i < 0 {
		return layer{}, false
	}
	return layers[i], true
}

// allowed reports whether from may import path: a package of its own folder, one
// that is internal to its family (selector/internal/... for selector and all
// below it), or one that the list names.
func allowed(from, path string, may []string) bool {
	family, _, _ := strings.Cut(from, "/")
	if strings.HasPrefix(path, family+"/internal/") {
		return true
	}
	if own := folder(from); own != "" && (path == own || strings.HasPrefix(path, own+"/")) {
		return true
	}
	return slices.ContainsFunc(may, func(pattern string) bool { return matches(pattern, path) })
}

// folder is the part of the tree that a package shares with its helpers:
// "registry/nacos" for "registry/nacos/internal/naming"; none for a package at
// the top, which may not import what stands below it.
func folder(path string) string {
	parts := strings.Split(path, "/")
	if len(parts) < 2 {
		return ""
	}
	return strings.Join(parts[:2], "/")
}

// matches reports whether a path falls under a pattern.
func matches(pattern, path string) bool {
	if pattern == "..." {
		return true
	}
	if below, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(path, below+"/")
	}
	return pattern == path
}

func with(list []string, more ...string) []string { return slices.Concat(list, more) }
