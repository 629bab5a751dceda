package local_test

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/registry/registrytest"
)

func TestRegistry(t *testing.T) {
	t.Parallel()
	registrytest.Run(t, registrytest.Backend{
		Name:   "local",
		Bubble: true,
		Within: 200 * time.Millisecond,
		Expiry: 3 * time.Second,
		New:    newStore,
	})
}

func newStore(t *testing.T) registrytest.Store {
	dir := t.TempDir()
	return registrytest.Store{
		Open: func(t *testing.T) registry.Registry { return open(t, dir) },
		Kill: func(t *testing.T, handle registry.Registry) {
			t.Helper()
			victim, ok := handle.(*local.Registry)
			if !ok {
				t.Fatalf("%T is no local registry", handle)
			}
			local.Kill(victim)
		},
		Wipe: func(t *testing.T) {
			t.Helper()
			if err := os.RemoveAll(dir); err != nil {
				t.Fatal(err)
			}
		},
		Garbage: func(t *testing.T, service string) {
			t.Helper()
			good, err := filepath.Glob(filepath.Join(dir, service+"@*.json"))
			if err != nil || len(good) == 0 {
				t.Fatalf("no record to copy: %v", err)
			}
			raw, err := os.ReadFile(good[0])
			if err != nil {
				t.Fatal(err)
			}
			write(t, filepath.Join(dir, service+"@broken.json"), []byte(`{"format":1,"inst`))
			write(t, filepath.Join(dir, service+"@empty.json"), nil)
			write(t, filepath.Join(dir, service+"@copy.json"), raw)
			write(t, filepath.Join(dir, service+"@newer.json"), []byte(`{"format":9,"what":"ever"}`))
			write(t, filepath.Join(dir, "notes.txt"), []byte("not ours"))
		},
	}
}

func open(t *testing.T, dir string, opts ...local.Option) *local.Registry {
	t.Helper()
	r, err := local.New(dir, opts...)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// write writes a whole file at once, as an owner does.
func write(t *testing.T, path string, data []byte) {
	t.Helper()
	temp := path + ".new"
	if err := os.WriteFile(temp, data, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(temp, path); err != nil {
		t.Fatal(err)
	}
}
