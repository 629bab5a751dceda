package local_test

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry/local"
)

// ownerDir makes the test binary an owner: a process that registers one
// instance, says so, and lives until it is killed.
const ownerDir = "MATERPC_TEST_LOCAL_OWNER"

func TestMain(m *testing.M) {
	if dir := os.Getenv(ownerDir); dir != "" {
		os.Exit(owner(dir))
	}
	os.Exit(m.Run())
}

func owner(dir string) int {
	r, err := local.New(dir)
	if err == nil {
		err = r.Register(context.Background(), user(fmt.Sprintf("pid-%d", os.Getpid())))
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println("registered")
	_, _ = io.Copy(io.Discard, os.Stdin) // until the parent ends
	if err := r.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// child is an owner in a process of its own.
type child struct {
	cmd   *exec.Cmd
	stdin io.Closer
	id    string
}

func spawn(t *testing.T, dir string) *child {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), ownerDir+"="+dir)
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	must(t, err)
	stdout, err := cmd.StdoutPipe()
	must(t, err)
	must(t, cmd.Start())
	line, err := bufio.NewReader(stdout).ReadString('\n')
	if err != nil || strings.TrimSpace(line) != "registered" {
		t.Fatalf("the owner says %q, %v", line, err)
	}
	return &child{cmd: cmd, stdin: stdin, id: fmt.Sprintf("pid-%d", cmd.Process.Pid)}
}

// await reads a watcher until a list has exactly these instances, and returns
// how long that took.
func await(t *testing.T, watcher kregistry.Watcher, bound time.Duration, want ...string) time.Duration {
	t.Helper()
	began := time.Now()
	timer := time.AfterFunc(bound, func() { _ = watcher.Stop() })
	defer timer.Stop()
	for {
		found, err := watcher.Next()
		if err != nil {
			t.Fatalf("not within %s: %v", bound, want)
		}
		have := map[string]bool{}
		for _, in := range found {
			have[in.ID] = true
		}
		missing := len(have) != len(want)
		for _, id := range want {
			missing = missing || !have[id]
		}
		if !missing {
			return time.Since(began)
		}
	}
}

func TestKilledProcessExpiresAndOthersStay(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	reader := open(t, dir)
	defer closeAll(t, reader)
	watcher, err := reader.Watch(t.Context(), "user")
	must(t, err)
	defer func() { _ = watcher.Stop() }()
	victim, survivor := spawn(t, dir), spawn(t, dir)
	t.Logf("both seen after %s", await(t, watcher, 10*time.Second, victim.id, survivor.id))

	must(t, victim.cmd.Process.Kill())
	_ = victim.cmd.Wait() // it says "killed"
	took := await(t, watcher, 10*time.Second, survivor.id)
	t.Logf("the killed one's record expired after %s", took)
	if took < time.Second {
		t.Errorf("expired after %s, before its heartbeat was overdue", took)
	}

	must(t, os.RemoveAll(dir))
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
	defer cancel()
	began := time.Now()
	for !exists(filepath.Join(dir, local.FileName("user", survivor.id))) {
		if ctx.Err() != nil {
			t.Fatal("the survivor did not write its record again")
		}
		tick(ctx)
	}
	t.Logf("after a wipe the record was back in %s", time.Since(began))
	if got := list(t, reader, "user"); got != survivor.id {
		t.Errorf("after the wipe the list is %q", got)
	}

	must(t, survivor.stdin.Close())
	must(t, survivor.cmd.Wait())
	if left := files(t, dir); len(left) != 0 {
		t.Errorf("an owner that ended in order left %v", left)
	}
}

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func tick(ctx context.Context) {
	timer := time.NewTimer(10 * time.Millisecond)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
