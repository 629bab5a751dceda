package main

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"github.com/materpc/materpc"
)

// TestRun builds the server, runs it as a process of its own, calls it as the
// text of docs/getting-started.md does, and stops it.
func TestRun(t *testing.T) {
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	program := build(ctx, t)
	// The user's own registry, in a place of this test; after the build, which
	// has its cache there too.
	t.Setenv("XDG_CACHE_HOME", t.TempDir())
	t.Setenv("HOME", t.TempDir())
	server := serve(ctx, t, program)

	var out bytes.Buffer
	if err := run(ctx, &out); err != nil {
		t.Fatal(err)
	}
	want, err := os.ReadFile("testdata/output.txt") // which the text shows
	if err != nil {
		t.Fatal(err)
	}
	if out.String() != string(want) {
		t.Errorf("got\n%swant\n%s", out.String(), want)
	}
	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v", err)
	}
}

func build(ctx context.Context, t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "server")
	if said, err := exec.CommandContext(ctx, "go", "build", "-o", program, "../server").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, said)
	}
	return program
}

// serve starts the server and waits for its line.
func serve(ctx context.Context, t *testing.T, program string) *exec.Cmd {
	t.Helper()
	command := exec.CommandContext(ctx, program)
	command.Stderr = t.Output()
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if command.ProcessState == nil {
			_ = command.Process.Kill()
			_ = command.Wait()
		}
	})
	if line := bufio.NewScanner(stdout); !line.Scan() || line.Text() != "stock serves" {
		t.Fatalf("the server said %q", line.Text())
	}
	return command
}

// TestExplain: one sentence for each thing that can happen.
func TestExplain(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		err  error
		want string
	}{
		{materpc.Errorf(materpc.RPCTimeout, "x"), "longer than our timeout"},
		{materpc.Errorf(materpc.NoInstance, "x"), "nobody is there"},
		{materpc.Errorf(materpc.ConnectionLost, "x"), "may have been reserved"},
		{status.Error(codes.NotFound, "no such article"), "failed as RemoteOrNetwork"},
		{errors.New("plain"), "plain"},
	} {
		if got := explain(c.err); !strings.Contains(got, c.want) {
			t.Errorf("%v: %q, want %q in it", c.err, got, c.want)
		}
	}
}
