package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"io"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/app"
	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/examples/hello/greeter"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

// TestRun greets a server in this process, found by name and by address.
func TestRun(t *testing.T) {
	dir := t.TempDir()
	addr := serve(t, dir)
	for _, target := range []string{"discovery:///hello", "direct:///" + addr, addr} {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		if err := run(ctx, config{target: target, registry: dir, name: "ada", shape: "all"}, &out); err != nil {
			t.Errorf("%s: %v", target, err)
		}
		cancel()
		want := []string{
			"unary         Hello, ada! (from one)",
			"server stream Hello, ada! (from one)",
			"server stream Hello, ada! (from one)",
			"client stream Hello, ada, friends! (from one)",
			"bidi stream   Hello, ada! (from one)",
			"bidi stream   Hello, again ada! (from one)",
		}
		if diff := cmp.Diff(want, strings.Split(strings.TrimSpace(out.String()), "\n")); diff != "" {
			t.Errorf("%s: (-want +got)\n%s", target, diff)
		}
	}
}

// TestRunFaults wants errors that name what is wrong.
func TestRunFaults(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	typo := filepath.Join(t.TempDir(), "typo")
	for _, c := range []struct{ name, target, registry, shape, want string }{
		{"unknown registry", "discovery:///hello", "nowhere://x", "all", "nowhere"},
		{"unknown scheme", "xyz:///hello", t.TempDir(), "all", "xyz"},
		{"nobody there", "discovery:///hello", t.TempDir(), "all", "unary"},
		{"a registry that nobody uses", "discovery:///hello", typo, "unary", typo + ": start a server with -registry " + typo},
		{"one shape of nobody", "discovery:///hello", t.TempDir(), "bidi stream", "bidi stream"},
		{"unknown shape", "discovery:///hello", t.TempDir(), "round", `-shape is "round"`},
	} {
		err := run(ctx, config{target: c.target, registry: c.registry, name: "ada", shape: c.shape}, &bytes.Buffer{})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", c.name, err, c.want)
		}
	}
}

// TestFlags: help names no path of a build folder, and nothing is ignored.
func TestFlags(t *testing.T) {
	t.Parallel()
	var help bytes.Buffer
	if _, err := parse([]string{"-h"}, &help); !errors.Is(err, flag.ErrHelp) ||
		!strings.HasPrefix(help.String(), "client calls") || !strings.Contains(help.String(), "-target") {
		t.Errorf("help: %v\n%s", err, &help)
	}
	for _, args := range [][]string{{"-nope"}, {"ada"}, {"-name", "ada", "bob"}} {
		if _, err := parse(args, io.Discard); err == nil || !strings.Contains(err.Error(), "-h lists the flags") {
			t.Errorf("%q: %v", args, err)
		}
	}
}

// serve runs an application with one greeter until the test ends.
func serve(t *testing.T, dir string) string {
	t.Helper()
	reg, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	server := grpc.NewServer(grpc.Listener(listener))
	hellov1.RegisterGreeterServer(server, greeter.New("one"))
	started := make(chan struct{})
	application := app.New(app.ID("one"), app.Name("hello"), app.Server(server), app.Registrar(reg),
		app.PropagationWindow(0), app.AfterStart(func(context.Context) error { close(started); return nil }))
	ended := make(chan error, 1)
	go func() { ended <- application.Run() }()
	select {
	case <-started:
	case err := <-ended:
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := application.Stop(); err != nil {
			t.Error(err)
		}
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
	})
	return listener.Addr().String()
}
