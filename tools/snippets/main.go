package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
)

func main() {
	check := flag.Bool("check", false, "change nothing, fail if a block differs from its region")
	flag.Parse()
	// The program runs in tools/; paths in Markdown count from the root.
	if err := run(context.Background(), os.DirFS(".."), "..", *check); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run fills or checks every Markdown file that git knows below root.
func run(ctx context.Context, files sources, root string, check bool) error {
	command := exec.CommandContext(ctx, "git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md")
	command.Dir = root
	listed, err := command.Output()
	if err != nil {
		return fmt.Errorf("list Markdown files: %w", err)
	}
	var faults []error
	for name := range strings.SplitSeq(strings.TrimRight(string(listed), "\x00"), "\x00") {
		if err := one(files, filepath.Join(root, name), name, check); err != nil {
			faults = append(faults, err)
		}
	}
	return errors.Join(faults...)
}

// one fills or checks one Markdown file.
func one(files sources, path, name string, check bool) error {
	before, err := os.ReadFile(path)
	if err != nil {
		return err
	}
	after, err := fill(files, name, string(before))
	if err != nil {
		return err
	}
	if after == string(before) {
		return nil
	}
	if check {
		return fmt.Errorf("%s: a block differs from its region: run make docs", name)
	}
	return os.WriteFile(path, []byte(after), 0o644)
}
