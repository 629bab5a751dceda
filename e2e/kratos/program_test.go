package kratos_test

import (
	"context"
	"encoding/json"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestProgramRunsWithEitherImportPath builds and runs a program written for
// Kratos as it is and with its two import paths replaced: both say the same.
func TestProgramRunsWithEitherImportPath(t *testing.T) {
	source := program(t)
	// The name of the root package is that of its last path element here, so an
	// import without a name needs Kratos's.
	moved := strings.NewReplacer(
		`"`+kratosModule+`"`, `kratos "github.com/materpc/materpc/app"`,
		`"`+kratosModule+`/transport/grpc"`, `"github.com/materpc/materpc/transport/grpc"`,
	).Replace(source)
	if strings.Count(moved, "github.com/materpc/materpc/app") != 1 || strings.Count(moved, "github.com/materpc/materpc/transport/grpc") != 1 {
		t.Fatal("the program does not import what is to be replaced")
	}
	want := "hello ada [/hello.v1.Greeter/SayHello] hello bob\n" +
		"program-1 program v1 a 1 v2.9.2 true [before start after start before stop after stop]\n"
	for name, text := range map[string]string{"kratos": source, "materpc": moved} {
		t.Run(name, func(t *testing.T) {
			binary := build(t, text)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			out, err := exec.CommandContext(ctx, binary).CombinedOutput()
			if err != nil || string(out) != want {
				t.Errorf("%v\n%s\nwant\n%s", err, out, want)
			}
		})
	}
}

// build compiles a main package inside this module, where no such folder is.
func build(t *testing.T, source string) string {
	t.Helper()
	dir := t.TempDir()
	writeFile(t, filepath.Join(dir, "main.go"), source)
	target, err := filepath.Abs("program/main.go")
	if err != nil {
		t.Fatal(err)
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {target: filepath.Join(dir, "main.go")}})
	if err != nil {
		t.Fatal(err)
	}
	writeFile(t, filepath.Join(dir, "overlay.json"), string(overlay))
	goCommand(t, "build", "-overlay="+filepath.Join(dir, "overlay.json"), "-o", filepath.Join(dir, "program"), "./program")
	return filepath.Join(dir, "program")
}

// TestProgramUsesTheWholeAPI holds the program against `go doc` of Kratos: a
// name that it does not use proves nothing.
func TestProgramUsesTheWholeAPI(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "program.go", program(t), parser.SkipObjectResolution)
	if err != nil {
		t.Fatal(err)
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if s, ok := n.(*ast.SelectorExpr); ok {
			used[path(s)] = true
		}
		return true
	})
	names := 0
	for alias, pkg := range map[string]string{"kratos": kratosModule, "grpc": kratosModule + "/transport/grpc"} {
		for line := range strings.Lines(goCommand(t, "doc", "-all", pkg)) {
			declared := declarationPattern.FindStringSubmatch(line)
			if declared == nil || declared[2] == "NewWrappedStream" {
				continue
			}
			name := alias + "." + declared[2]
			if declared[1] != "" { // of a method: its receiver
				name = alias + "." + declared[1] + "." + declared[2]
			}
			names++
			if !used[name] {
				t.Errorf("the program does not use %s", name)
			}
		}
	}
	if names < 75 {
		t.Errorf("only %d names found in go doc", names)
	}
}

var declarationPattern = regexp.MustCompile(`^(?:func(?: \(\w+ \*?(\w+)\))?|type|const) (\w+)`)

// path is a selector without its parentheses and stars: (*grpc.Server).Use is
// grpc.Server.Use.
func path(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.Ident:
		return e.Name
	case *ast.ParenExpr:
		return path(e.X)
	case *ast.StarExpr:
		return path(e.X)
	case *ast.SelectorExpr:
		return path(e.X) + "." + e.Sel.Name
	default:
		return ""
	}
}

func program(t *testing.T) string {
	t.Helper()
	source, err := os.ReadFile("testdata/program.go.txt")
	if err != nil {
		t.Fatal(err)
	}
	return string(source)
}
