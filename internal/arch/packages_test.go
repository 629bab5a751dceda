package arch_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/materpc/materpc"

// pkg is what "go list" says of one package.
type pkg struct {
	ImportPath   string
	Name         string
	Doc          string
	Dir          string
	Standard     bool
	GoFiles      []string
	Imports      []string
	TestImports  []string
	XTestImports []string
	Deps         []string
	Module       *struct{ Path string }
}

// short is the import path within the module; the root package is ".".
func (p *pkg) short() string { return short(p.ImportPath) }

func short(path string) string {
	if path == module {
		return "."
	}
	return strings.TrimPrefix(path, module+"/")
}

// ours reports whether an import path belongs to the root module.
func ours(path string) bool {
	return path == module || strings.HasPrefix(path, module+"/")
}

// tree is the module's packages, sorted, and all that they need, by path.
type tree struct {
	root     string
	packages []*pkg
	all      map[string]*pkg
}

// load asks the go command. It needs nothing but the module cache, which building
// the module has filled.
func load(t *testing.T) *tree {
	t.Helper()
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	command := exec.CommandContext(t.Context(), "go", "list", "-deps", "-json", "./...")
	command.Dir = root
	// One platform, so that the golden file is the same everywhere.
	command.Env = append(os.Environ(), "GOWORK=off", "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	var stderr bytes.Buffer
	command.Stderr = &stderr
	output, err := command.Output()
	if err != nil {
		t.Fatalf("go list: %v\n%s", err, stderr.String())
	}
	result := &tree{root: root, all: map[string]*pkg{}}
	for decoder := json.NewDecoder(bytes.NewReader(output)); ; {
		p := &pkg{}
		if err := decoder.Decode(p); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go list: %v", err)
		}
		result.all[p.ImportPath] = p
		if ours(p.ImportPath) {
			result.packages = append(result.packages, p)
		}
	}
	slices.SortFunc(result.packages, func(a, b *pkg) int { return strings.Compare(a.ImportPath, b.ImportPath) })
	if len(result.packages) == 0 {
		t.Fatal("go list found no package of the module")
	}
	return result
}

// imports are the packages of the module that p imports itself.
func (t *tree) imports(p *pkg) []string {
	var inner []string
	for _, path := range p.Imports {
		if ours(path) {
			inner = append(inner, short(path))
		}
	}
	slices.Sort(inner)
	return inner
}

// reaches are the third-party modules that end up in a program with p.
func (t *tree) reaches(p *pkg) []string {
	var modules []string
	for _, path := range p.Deps {
		dep := t.all[path]
		if dep != nil && !dep.Standard && dep.Module != nil && dep.Module.Path != module {
			modules = append(modules, dep.Module.Path)
		}
	}
	slices.Sort(modules)
	return slices.Compact(modules)
}
