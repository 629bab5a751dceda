package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/local"
)

// service is the name that servers register and the client calls.
const service = "hello"

func main() {
	command := demonstrate
	args := os.Args[1:]
	if len(args) > 0 && args[0] == serveCommand {
		command, args = serve, args[1:]
	}
	if err := command(args, os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "quickstart:", err)
		os.Exit(1)
	}
}

// demonstrate is the parent process: flags, a registry, one show.
func demonstrate(args []string, stdout, stderr io.Writer) (err error) {
	c, err := parseConfig(args, stdout)
	if errors.Is(err, flag.ErrHelp) {
		return nil
	}
	if err != nil {
		return err
	}
	name, remove, err := registryName(c.registry)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, remove()) }()
	reg, err := registry.Open(name, local.Opener())
	if err != nil {
		return err
	}
	defer closeRegistry(reg, &err)

	interrupted, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(interrupted, stop) // a second ctrl-C ends at once; the servers see it and leave

	out := stdout
	if c.json {
		out = stderr // standard output is for the one object
	}
	s, err := newShow(c, reg, name, newScreen(out)).run(interrupted)
	if s != nil && c.json {
		err = errors.Join(err, s.writeJSON(stdout))
	}
	return err
}

// registryName returns the name under which all processes open the registry,
// and what removes it at the end.
func registryName(given string) (name string, remove func() error, err error) {
	if given != "" {
		return given, func() error { return nil }, nil
	}
	dir, err := os.MkdirTemp("", "materpc-quickstart-")
	if err != nil {
		return "", nil, err
	}
	return filepath.ToSlash(dir), func() error { return os.RemoveAll(dir) }, nil
}

// closeRegistry closes what was opened, if it has anything to close.
func closeRegistry(reg registry.Registry, err *error) {
	if closer, ok := reg.(io.Closer); ok {
		*err = errors.Join(*err, closer.Close())
	}
}
