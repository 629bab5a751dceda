package registry

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// SchemeLocal is the scheme that a plain path stands for.
const SchemeLocal = "local"

// Variable is the environment variable that names a registry.
const Variable = "MATERPC_REGISTRY"

// FromEnvironment returns the name in the environment variable
// MATERPC_REGISTRY, else fallback. It is meant for the default of a flag.
func FromEnvironment(fallback string) string {
	if name := os.Getenv(Variable); name != "" {
		return name
	}
	return fallback
}

// Opener makes the registry that a URL scheme names.
type Opener struct {
	// Scheme is the URL scheme, in lower case, such as "local".
	Scheme string
	// Open returns the registry for a URL of that scheme. It reports every
	// fault of the URL and leaves nothing running when it fails.
	Open func(*url.URL) (Registry, error)
}

// Open returns the registry that a name describes, by one of the openers:
//
//	local                 the default of the scheme
//	local:///var/run/reg  a URL
//	/var/run/reg, ./reg   a path: the same as local with that directory
//
// The error for an unknown scheme names the known ones, and for a path without
// its beginning how that is written. Whoever opens a
// registry closes it, if it has a Close method.
func Open(name string, openers ...Opener) (Registry, error) {
	target, err := parseName(name)
	if err != nil {
		return nil, fmt.Errorf("registry %q: %w", name, err)
	}
	for _, opener := range openers {
		if opener.Scheme != target.Scheme {
			continue
		}
		if opener.Open == nil {
			return nil, fmt.Errorf("registry %q: the opener for scheme %q has no Open function", name, opener.Scheme)
		}
		opened, err := opener.Open(target)
		if err != nil {
			return nil, fmt.Errorf("registry %q: %w", name, err)
		}
		if opened == nil {
			return nil, fmt.Errorf("registry %q: the opener for scheme %q returned no registry", name, opener.Scheme)
		}
		return opened, nil
	}
	return nil, fmt.Errorf("registry %q: unknown scheme %q; known here: %s%s", name, target.Scheme, known(openers), pathHint(name, openers))
}

// pathHint helps whoever meant a path and wrote what reads as a scheme; "" where
// it cannot be one.
func pathHint(name string, openers []Opener) string {
	local := slices.ContainsFunc(openers, func(o Opener) bool { return o.Scheme == SchemeLocal })
	rest, home := strings.CutPrefix(name, "~/")
	switch {
	case !local || strings.Contains(name, ":"):
		return ""
	case home:
		return "; a path starts with / or ./, and only a shell expands ~, such as $HOME/" + rest
	}
	return "; a path starts with / or ./, such as ./" + name
}

// parseName turns the three spellings of a name into a URL.
func parseName(name string) (*url.URL, error) {
	switch {
	case strings.TrimSpace(name) == "":
		return nil, errors.New(`the name is empty; give a scheme such as "local", a URL such as "local:///DIR", or a path`)
	case isPath(name):
		dir, err := filepath.Abs(name)
		if err != nil {
			return nil, fmt.Errorf("the path cannot be made absolute: %w", err)
		}
		return &url.URL{Scheme: SchemeLocal, Path: filepath.ToSlash(dir)}, nil
	case !strings.Contains(name, ":"):
		return &url.URL{Scheme: strings.ToLower(name)}, nil
	}
	target, err := url.Parse(name)
	if err != nil {
		return nil, fmt.Errorf("not a URL: %w", err)
	}
	return target, nil
}

// isPath tells a path from a scheme: it begins like one. A bare "name" is a
// scheme, so a relative directory is written "./name".
func isPath(name string) bool {
	return filepath.IsAbs(name) || name == "." || name == ".." || strings.HasPrefix(name, "./") || strings.HasPrefix(name, "../") ||
		strings.HasPrefix(name, `.\`) || strings.HasPrefix(name, `..\`)
}

func known(openers []Opener) string {
	names := make([]string, 0, len(openers))
	paths := false
	for _, opener := range openers {
		names = append(names, opener.Scheme)
		paths = paths || opener.Scheme == SchemeLocal
	}
	if len(names) == 0 {
		return "none, no opener was given"
	}
	slices.Sort(names)
	if paths {
		names = append(names, "a path (absolute or ./relative) for local")
	}
	return strings.Join(names, ", ")
}
