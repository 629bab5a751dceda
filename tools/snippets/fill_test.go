package main

import (
	"strings"
	"testing"
	"testing/fstest"
)

const source = `package main

func main() {
	// region:dial

	a := 1
	// region:inner
	if a > 0 {

		a++
	}
	// endregion:inner
	// endregion:dial
}
`

func TestFill(t *testing.T) {
	files := fstest.MapFS{"x/main.go": {Data: []byte(source)}}
	for _, c := range []struct{ name, before, want, fault string }{
		{
			name:   "a region without its inner markers and indentation",
			before: "T\n\n<!-- snippet: x/main.go dial -->\n```go\nold\n```\nend\n",
			want:   "T\n\n<!-- snippet: x/main.go dial -->\n```go\na := 1\nif a > 0 {\n\n\ta++\n}\n```\nend\n",
		},
		{
			name:   "a block that is true stays",
			before: "<!-- snippet: x/main.go inner -->\n```go\nif a > 0 {\n\n\ta++\n}\n```\n",
			want:   "<!-- snippet: x/main.go inner -->\n```go\nif a > 0 {\n\n\ta++\n}\n```\n",
		},
		{name: "other blocks are not touched", before: "```sh\nls\n```\n", want: "```sh\nls\n```\n"},
		{name: "unknown region", before: "<!-- snippet: x/main.go gone -->\n```go\n```\n", fault: `p.md:1: x/main.go: no region "gone"`},
		{name: "unknown file", before: "\n<!-- snippet: y.go gone -->\n```go\n```\n", fault: "p.md:2: open y.go"},
		{name: "no block", before: "<!-- snippet: x/main.go dial -->\ntext\n", fault: "no fenced block"},
		{name: "open block", before: "<!-- snippet: x/main.go dial -->\n```go\ntext\n", fault: "not closed"},
	} {
		t.Run(c.name, func(t *testing.T) {
			got, err := fill(files, "p.md", c.before)
			switch {
			case c.fault == "" && err != nil:
				t.Fatal(err)
			case c.fault != "" && (err == nil || !strings.Contains(err.Error(), c.fault)):
				t.Fatalf("error %v, want one with %q", err, c.fault)
			case c.fault == "" && got != c.want:
				t.Errorf("got\n%s\nwant\n%s", got, c.want)
			}
		})
	}
}

// TestFillReportsAllFaults wants both faults of a file in one error.
func TestFillReportsAllFaults(t *testing.T) {
	_, err := fill(fstest.MapFS{}, "p.md", "<!-- snippet: a.go x -->\n```go\n```\n<!-- snippet: b.go x -->\n```go\n```\n")
	if err == nil || !strings.Contains(err.Error(), "p.md:1") || !strings.Contains(err.Error(), "p.md:4") {
		t.Errorf("error %v, want lines 1 and 4", err)
	}
}
