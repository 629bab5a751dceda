package main

import (
	"bufio"
	"bytes"
	"context"
	"net"
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

// TestServerFaults wants status 1, one line that says what is wrong on standard
// error, and nothing half started.
func TestServerFaults(t *testing.T) {
	taken, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.Close()
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	for _, c := range []struct {
		name, want string
		args       []string
	}{
		{"unknown registry", "nowhere", []string{"-registry", "nowhere://x"}},
		{"unwritable registry", file, []string{"-registry", filepath.Join(file, "below")}},
		{"bad port", "127.0.0.1:99999", []string{"-addr", "127.0.0.1:99999", "-registry", dir}},
		{"no port", "nonsense", []string{"-addr", "nonsense", "-registry", dir}},
		{"taken port", taken.Addr().String(), []string{"-addr", taken.Addr().String(), "-registry", dir}},
		{"unknown flag", "-h lists the flags", []string{"-nope"}},
		{"argument", "-h lists the flags", []string{"-registry", dir, "ada"}},
		{"bad window", "PropagationWindow(-1s)", []string{"-window", "-1s", "-registry", dir}},
	} {
		t.Run(c.name, func(t *testing.T) {
			var stdout, stderr bytes.Buffer
			command := process(t.Context(), c.args...)
			command.Stdout, command.Stderr = &stdout, &stderr
			err := command.Run()
			said := stderr.String()
			if err == nil || command.ProcessState.ExitCode() != 1 || !strings.Contains(said, c.want) {
				t.Errorf("%v, want status 1 and %q in:\n%s", err, c.want, said)
			}
			if strings.Count(said, "\n") != 1 || stdout.Len() > 0 {
				t.Errorf("one line is due, it said:\n%s%s", &stdout, said)
			}
			if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
				t.Errorf("left in the registry: %v, %v", left, err)
			}
		})
	}
}

// TestHelp names no path of a build folder and is no fault.
func TestHelp(t *testing.T) {
	t.Parallel()
	out, err := process(t.Context(), "-h").CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "server runs hello.v1.Greeter") || strings.Contains(string(out), os.Args[0]) {
		t.Errorf("%v\n%s", err, out)
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
