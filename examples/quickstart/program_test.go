package main

import (
	"bufio"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"testing"
	"time"
)

// TestProgram runs the README's command as a binary of its own, for as short as
// it takes to restart and to kill.
func TestProgram(t *testing.T) {
	t.Parallel()
	binary := filepath.Join(t.TempDir(), "quickstart")
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", binary, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	for _, window := range []string{"300ms", "0"} {
		t.Run("rolling restarts with a window of "+window, func(t *testing.T) {
			t.Parallel()
			rollingRestarts(t, binary, window)
		})
	}
	t.Run("interrupted", func(t *testing.T) {
		t.Parallel()
		interrupted(t, binary)
	})
	t.Run("the parent dies", func(t *testing.T) {
		t.Parallel()
		parentDies(t, binary)
	})
}

func rollingRestarts(t *testing.T, binary, window string) {
	command := exec.CommandContext(t.Context(), binary, "-duration", "5s", "-rate", "100", "-window", window, "-json")
	var progress strings.Builder
	command.Stderr = &progress
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, progress.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	var got map[string]float64
	if err := json.Unmarshal([]byte(lines[len(lines)-1]), &got); err != nil {
		t.Fatalf("last line %q: %v", lines[len(lines)-1], err)
	}
	if got["failed"] != 0 || got["calls"] < 400 || got["streams"] < 40 || got["restarts"] < 1 || got["killed"] != 1 ||
		got["servers"] != 3 || got["p50_ms"] < 20 || got["p99_ms"] < got["p50_ms"] {
		t.Errorf("summary %v\n%s", got, progress.String())
	}
}

// interrupted: ctrl-C ends the load, the calls that run are finished, and
// nothing is left.
func interrupted(t *testing.T, binary string) {
	temporary := t.TempDir()
	command, lines := startFleetOfTwo(t, binary, "TMPDIR="+temporary)
	if err := command.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	var text strings.Builder
	for lines.Scan() {
		text.WriteString(lines.Text() + "\n")
	}
	if err := command.Wait(); err != nil || !strings.Contains(text.String(), "Interrupted: the servers have left in order.") {
		t.Errorf("%v, want status 0 and a word about it:\n%s", err, text.String())
	}
	if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// parentDies: the servers notice, and take their records with them.
func parentDies(t *testing.T, binary string) {
	if runtime.GOOS == "windows" {
		t.Skip("a parent that ends leaves its pipes open to others there")
	}
	dir := t.TempDir()
	command, _ := startFleetOfTwo(t, binary, "TMPDIR="+t.TempDir(), "-registry", dir)
	if got := records(t, dir); got != 2 {
		t.Fatalf("%d records, want one for each server", got)
	}
	if err := command.Process.Signal(syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = command.Wait()
	ticker := time.NewTicker(20 * time.Millisecond)
	defer ticker.Stop()
	for end := time.Now().Add(8 * time.Second); records(t, dir) > 0; <-ticker.C {
		if time.Now().After(end) {
			t.Fatalf("%d servers outlived their parent", records(t, dir))
		}
	}
}

// startFleetOfTwo starts a fleet of two and returns when it serves.
func startFleetOfTwo(t *testing.T, binary, environment string, args ...string) (*exec.Cmd, *bufio.Scanner) {
	t.Helper()
	command := exec.CommandContext(t.Context(), binary, append([]string{"-rate", "20", "-servers", "2"}, args...)...)
	command.Env = append(os.Environ(), environment)
	command.Stderr = t.Output()
	stdout, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(stdout)
	for seen := 0; seen < 2 && lines.Scan(); {
		if strings.Contains(lines.Text(), "serves as process") {
			seen++
		}
	}
	return command, lines
}

// records counts what is registered in a directory.
func records(t *testing.T, dir string) int {
	t.Helper()
	list, err := filepath.Glob(filepath.Join(dir, "*.json"))
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}
