package interop

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
)

// Tool is a Go program at a fixed version.
type Tool struct {
	Package string // of its main, for instance example.com/tool/cmd/tool
	Version string // of its module, for instance v1.2.3
}

// Path returns the program's file. If no earlier run has built it, Path builds
// it, which may take minutes and needs the module proxy. Several processes may
// do so at once: the program appears whole or not at all.
func (t Tool) Path(ctx context.Context) (string, error) {
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", fmt.Errorf("no place for %s: %w", t.Package, err)
	}
	name := path.Base(t.Package)
	built := filepath.Join(cache, "materpc", "tools", name+"@"+t.Version, name)
	if _, err := os.Stat(built); err == nil {
		return built, nil
	}
	return built, t.build(ctx, name, built)
}

func (t Tool) build(ctx context.Context, name, built string) error {
	folder := filepath.Dir(built)
	if err := os.MkdirAll(folder, 0o700); err != nil {
		return err
	}
	fresh, err := os.MkdirTemp(folder, "build")
	if err != nil {
		return err
	}
	install := exec.CommandContext(ctx, "go", "install", t.Package+"@"+t.Version)
	install.Dir = fresh
	install.Env = append(os.Environ(), "GOBIN="+fresh, "GOWORK=off", "GOFLAGS=", "GOOS=", "GOARCH=")
	out, err := install.CombinedOutput()
	if err != nil {
		err = fmt.Errorf("build %s@%s: %w\n%s", t.Package, t.Version, err, out)
	} else {
		err = os.Rename(filepath.Join(fresh, name), built)
	}
	return errors.Join(err, os.RemoveAll(fresh))
}
