package main

import (
	"errors"
	"fmt"
	"io/fs"
	"regexp"
	"strings"
)

// sources is where regions are read from.
type sources = fs.FS

var (
	snippetPattern = regexp.MustCompile(`^<!-- snippet: (\S+)(?: (\S+))? -->$`)
	markerPattern  = regexp.MustCompile(`^\s*// (end)?region:\S+\s*$`)
)

// fill returns the Markdown text with each marked block replaced by its region.
// It reports all faults of the file at once and then returns no text.
func fill(files sources, name, text string) (string, error) {
	var (
		out    []string
		faults []error
		lines  = strings.Split(text, "\n")
	)
	for i := 0; i < len(lines); i++ {
		out = append(out, lines[i])
		mark := snippetPattern.FindStringSubmatch(strings.TrimSpace(lines[i]))
		if mark == nil {
			continue
		}
		end, err := fence(lines, i+1)
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", name, i+1, err))
			continue
		}
		code, err := region(files, mark[1], mark[2])
		if err != nil {
			faults = append(faults, fmt.Errorf("%s:%d: %w", name, i+1, err))
			continue
		}
		out = append(out, lines[i+1])
		out = append(out, code...)
		i = end - 1 // the closing fence is copied by the next turn
	}
	return strings.Join(out, "\n"), errors.Join(faults...)
}

// fence finds the closing line of the block that opens at line open.
func fence(lines []string, open int) (int, error) {
	if open >= len(lines) || !strings.HasPrefix(lines[open], "```") {
		return 0, errors.New("no fenced block right below the snippet comment")
	}
	for i := open + 1; i < len(lines); i++ {
		if strings.TrimSpace(lines[i]) == "```" {
			return i, nil
		}
	}
	return 0, errors.New("the fenced block is not closed")
}

// region reads the lines between the markers of a region, without common
// indentation; an empty name takes the file whole.
func region(files sources, path, name string) ([]string, error) {
	text, err := fs.ReadFile(files, path)
	if err != nil {
		return nil, err
	}
	lines := strings.Split(strings.TrimRight(string(text), "\n"), "\n")
	if name != "" {
		if lines, err = between(lines, name); err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
	}
	var kept []string
	for _, line := range lines {
		if !markerPattern.MatchString(line) {
			kept = append(kept, line)
		}
	}
	return dedent(trim(kept)), nil
}

// trim takes away empty lines at both ends.
func trim(lines []string) []string {
	for len(lines) > 0 && lines[0] == "" {
		lines = lines[1:]
	}
	for len(lines) > 0 && lines[len(lines)-1] == "" {
		lines = lines[:len(lines)-1]
	}
	return lines
}

// between cuts one region out; each name may stand once in a file.
func between(lines []string, name string) ([]string, error) {
	start, end := -1, -1
	for i, line := range lines {
		switch strings.TrimSpace(line) {
		case "// region:" + name:
			if start >= 0 {
				return nil, fmt.Errorf("region %q starts twice", name)
			}
			start = i
		case "// endregion:" + name:
			if end >= 0 {
				return nil, fmt.Errorf("region %q ends twice", name)
			}
			end = i
		}
	}
	if start < 0 || end < start {
		return nil, fmt.Errorf("no region %q, or its end is missing", name)
	}
	return lines[start+1 : end], nil
}

// dedent takes away the tabs that all non-empty lines begin with.
func dedent(lines []string) []string {
	common := -1
	for _, line := range lines {
		if line == "" {
			continue
		}
		tabs := len(line) - len(strings.TrimLeft(line, "\t"))
		if common < 0 || tabs < common {
			common = tabs
		}
	}
	out := make([]string, len(lines))
	for i, line := range lines {
		if line != "" {
			out[i] = line[common:]
		}
	}
	return out
}
