package main

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	hellov1 "github.com/materpc/materpc/examples/hello/api/hello/v1"
	"github.com/materpc/materpc/registry/local"
	"github.com/materpc/materpc/transport/grpc"
)

// asServer makes the test binary run main instead: the tests are then about a
// process of its own.
const asServer = "HELLO_TEST_AS_SERVER"

func TestMain(m *testing.M) {
	if os.Getenv(asServer) != "" {
		main()
		return
	}
	os.Exit(m.Run())
}

// TestServerProcess finds the server by name from another process, calls it, and
// stops it with SIGTERM: status 0, and its record is gone.
func TestServerProcess(t *testing.T) {
	dir := t.TempDir()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	server, addr := start(ctx, t, "-addr", "127.0.0.1:0", "-registry", "local://"+filepath.ToSlash(dir), "-window", "100ms")
	if host, port, ok := strings.Cut(addr, ":"); !ok || host != "127.0.0.1" || port == "0" {
		t.Errorf("address %q, want 127.0.0.1 and the port it got", addr)
	}

	reg, err := local.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := reg.Close(); err != nil {
			t.Error(err)
		}
	}()
	list, err := reg.GetService(ctx, "hello")
	if err != nil || len(list) != 1 {
		t.Fatalf("registered: %v, %v, want one instance", list, err)
	}
	conn, err := grpc.NewClient("discovery:///hello", grpc.WithDiscovery(reg), grpc.WithInsecure())
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	out, err := hellov1.NewGreeterClient(conn).SayHello(ctx, &hellov1.SayHelloRequest{Name: "ada"})
	if err != nil || out.GetMessage() != "Hello, ada!" || out.GetServer() != list[0].ID {
		t.Errorf("got %v, %v, want a greeting from %s", out, err, list[0].ID)
	}

	if err := server.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := server.Wait(); err != nil {
		t.Errorf("after SIGTERM: %v, want status 0", err)
	}
	if list, _ := reg.GetService(ctx, "hello"); len(list) != 0 {
		t.Errorf("still registered after the stop: %v", list)
	}
}

// TestServerFaults wants status 1 and the fault on standard error.
func TestServerFaults(t *testing.T) {
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"unknown registry", "nowhere", []string{"-registry", "nowhere://x"}},
		{"bad address", "127.0.0.1:99999", []string{"-addr", "127.0.0.1:99999", "-registry", t.TempDir()}},
	} {
		var stderr bytes.Buffer
		command := process(t.Context(), c.args...)
		command.Stderr = &stderr
		if err := command.Run(); err == nil || command.ProcessState.ExitCode() != 1 || !strings.Contains(stderr.String(), c.want) {
			t.Errorf("%s: %v, want status 1 and %q in:\n%s", c.name, err, c.want, stderr.String())
		}
	}
}

// process is this program, run as the server.
func process(ctx context.Context, args ...string) *exec.Cmd {
	command := exec.CommandContext(ctx, os.Args[0], args...)
	command.Env = append(os.Environ(), asServer+"=1")
	return command
}

// start runs the server and waits for the line with its address.
func start(ctx context.Context, t *testing.T, args ...string) (*exec.Cmd, string) {
	t.Helper()
	command := process(ctx, args...)
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
	for lines := bufio.NewScanner(stdout); lines.Scan(); {
		if addr, ok := strings.CutPrefix(lines.Text(), "listening on "); ok {
			return command, addr
		}
	}
	t.Fatal("the server ended without an address")
	return nil, ""
}
