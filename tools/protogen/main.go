package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

func main() {
	if err := run(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "protogen:", err)
		os.Exit(1)
	}
}

// run generates for every import root and reports the faults of all of them.
func run(ctx context.Context, roots []string) error {
	if len(roots) == 0 {
		return errors.New("no import root given: name a folder, as in `protogen examples/hello/api`")
	}
	var faults []error
	for _, root := range roots {
		if err := generate(ctx, within(root)); err != nil {
			faults = append(faults, fmt.Errorf("%s: %w", root, err))
		}
	}
	return errors.Join(faults...)
}

// within returns a root as this program sees it: it runs in tools/, since its
// pins are there.
func within(root string) string {
	if filepath.IsAbs(root) {
		return root
	}
	return filepath.Join("..", root)
}

// generate compiles all .proto files below root and writes what the plugins
// make of them.
func generate(ctx context.Context, root string) error {
	names, err := protoFiles(root)
	if err != nil {
		return err
	}
	files, err := compile(ctx, root, names)
	if err != nil {
		return err
	}
	// Tool lines of tools/go.mod: messages, then services.
	for _, plugin := range []string{"protoc-gen-go", "protoc-gen-go-grpc"} {
		outputs, err := runPlugin(ctx, plugin, names, files)
		if err != nil {
			return err
		}
		if err := write(root, outputs); err != nil {
			return err
		}
	}
	return nil
}

// protoFiles lists the .proto files below root as import paths, sorted.
func protoFiles(root string) ([]string, error) {
	var names []string
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(path, ".proto") {
			return err
		}
		name, err := filepath.Rel(root, path)
		names = append(names, filepath.ToSlash(name))
		return err
	})
	if err == nil && len(names) == 0 {
		err = errors.New("no .proto file below it")
	}
	slices.Sort(names)
	return names, err
}

// write stores the generated files below root.
func write(root string, outputs map[string]string) error {
	for name, content := range outputs {
		path := filepath.Join(root, filepath.FromSlash(name))
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}
