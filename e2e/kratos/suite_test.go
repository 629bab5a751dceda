package kratos_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const kratosModule = "github.com/go-kratos/kratos/v2"

// suite is a copy of Kratos's sources that `go test` takes in the place of the
// released module. A copy, since go accepts no overlay beneath its module cache.
type suite struct {
	dir     string // of the copy
	modfile string // this module's go.mod, with the copy in the place of Kratos
}

func newSuite(t *testing.T) suite {
	t.Helper()
	source := strings.TrimSpace(goCommand(t, "list", "-m", "-f", "{{.Dir}}", kratosModule))
	s := suite{dir: filepath.Join(t.TempDir(), "kratos"), modfile: filepath.Join(t.TempDir(), "suite.mod")}
	if err := os.CopyFS(s.dir, os.DirFS(source)); err != nil {
		t.Fatal(err)
	}
	for from, to := range map[string]string{"go.mod": s.modfile, "go.sum": strings.TrimSuffix(s.modfile, ".mod") + ".sum"} {
		content, err := os.ReadFile(from)
		if err != nil {
			t.Fatal(err)
		}
		writeFile(t, to, string(content))
	}
	core, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	goCommand(t, "mod", "edit", "-replace", kratosModule+"="+s.dir, "-replace", "github.com/materpc/materpc="+core, s.modfile)
	return s
}

// addSelector makes our selector the global one in the suites of transport/grpc
// and transport/http, the only ones that select.
func (s suite) addSelector(t *testing.T) {
	t.Helper()
	source, err := os.ReadFile("testdata/selector.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"grpc", "http"} {
		writeFile(t, filepath.Join(s.dir, "transport", name, "zz_selector_test.go"), strings.ReplaceAll(string(source), "PACKAGE", name))
	}
}

// outcome is what one run of suites said.
type outcome struct {
	passed, failed map[string]bool   // by package and test
	output         map[string]string // by package, of all its tests
}

// run runs the suites of some packages below transport. Failing tests are an
// outcome; anything else that fails, such as a suite that does not build, ends
// the test.
func (s suite) run(t *testing.T, environment []string, args ...string) outcome {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", append([]string{"test", "-modfile=" + s.modfile, "-count=1", "-json"}, args...)...)
	command.Env = append(os.Environ(), append(environment, "GOWORK=off", "GOPROXY=off")...)
	var complaints bytes.Buffer
	command.Stderr = &complaints
	stdout, err := command.Output()
	if exit := new(exec.ExitError); err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	o := outcome{passed: map[string]bool{}, failed: map[string]bool{}, output: map[string]string{}}
	decoder := json.NewDecoder(bytes.NewReader(stdout))
	for {
		var event struct{ Action, Package, Test, Output string }
		if err := decoder.Decode(&event); errors.Is(err, io.EOF) {
			break
		} else if err != nil {
			t.Fatalf("go test: %v\n%s", err, complaints.String())
		}
		name := strings.TrimPrefix(event.Package, kratosModule+"/") + " " + event.Test
		switch event.Action {
		case "build-fail":
			t.Fatalf("%s does not build:\n%s", name, stdout)
		case "output", "build-output":
			o.output[event.Package] += event.Output
		case "pass":
			o.passed[name] = true
		case "fail":
			o.failed[name] = true
		}
	}
	if len(o.passed)+len(o.failed) == 0 {
		t.Fatalf("no test ran:\n%s", complaints.String())
	}
	return o
}

var suitePackages = []string{kratosModule + "/transport/grpc/...", kratosModule + "/transport/http/..."}

// TestKratosSuitesPassWithOurSelector runs Kratos's own transport suites as they
// are and with our selector as the global one: ours fails no test that passes
// without it. What fails in both fails for its environment, and is told.
func TestKratosSuitesPassWithOurSelector(t *testing.T) {
	s := newSuite(t)
	original := s.run(t, nil, suitePackages...)
	s.addSelector(t)
	ours := s.run(t, nil, suitePackages...)

	for _, name := range slices.Sorted(maps.Keys(original.passed)) {
		if !ours.passed[name] {
			t.Errorf("passes in Kratos, not with our selector: %s\n%s", name, ours.output[kratosModule+"/"+strings.Fields(name)[0]])
		}
	}
	for _, name := range slices.Sorted(maps.Keys(original.failed)) {
		t.Logf("fails without our selector too, with it: passed %t: %s", ours.passed[name], name)
	}
	t.Logf("%d passed and %d failed in Kratos, %d and %d with our selector", len(original.passed), len(original.failed), len(ours.passed), len(ours.failed))
	if len(original.passed) < 60 {
		t.Errorf("only %d tests passed in Kratos itself: %v failed", len(original.passed), slices.Sorted(maps.Keys(original.failed)))
	}
	for name, pattern := range map[string]string{"grpc": `built=(\d+) picked=(\d+)`, "http": `built=(\d+)`} {
		count := regexp.MustCompile("our selector: " + pattern).FindStringSubmatch(ours.output[kratosModule+"/transport/"+name])
		if count == nil || slices.ContainsFunc(count[1:], func(n string) bool { i, _ := strconv.Atoi(n); return i == 0 }) {
			t.Errorf("transport/%s did not use our selector: %v", name, count)
		}
	}
}

// TestKratosSuitesNoticeABrokenSelector: the test above means something only
// if the suites fail when no pick succeeds.
func TestKratosSuitesNoticeABrokenSelector(t *testing.T) {
	s := newSuite(t)
	s.addSelector(t)
	broken := s.run(t, []string{"MATERPC_BROKEN_SELECTOR=1"}, "-run=^TestServer$", "-timeout=20s", kratosModule+"/transport/grpc")
	if len(broken.failed) == 0 {
		t.Errorf("TestServer passes although every pick fails: %v", broken.passed)
	}
}

// goCommand runs the go command in this module and returns what it printed.
func goCommand(t *testing.T, args ...string) string {
	t.Helper()
	command := exec.CommandContext(t.Context(), "go", args...)
	command.Env = append(os.Environ(), "GOWORK=off", "GOPROXY=off")
	var complaints bytes.Buffer
	command.Stderr = &complaints
	stdout, err := command.Output()
	if err != nil {
		t.Fatalf("go %s: %v\n%s", strings.Join(args, " "), err, complaints.String())
	}
	return string(stdout)
}

func writeFile(t *testing.T, path, content string) {
	t.Helper()
	if err := os.WriteFile(path, []byte(content), 0o600); err != nil {
		t.Fatal(err)
	}
}
