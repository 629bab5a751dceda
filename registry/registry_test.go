package registry_test

import (
	"net/url"
	"slices"
	"strings"
	"testing"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/registry"
	"github.com/materpc/materpc/registry/memory"
)

func TestCaseB50CloneSharesNothing(t *testing.T) {
	t.Parallel()
	for _, metadata := range []map[string]string{nil, {"a": "1"}} {
		in := &kregistry.ServiceInstance{ID: "1", Name: "user", Metadata: metadata, Endpoints: []string{"grpc://h:1", "http://h:2"}}
		out := registry.Clone(in)
		if diff := cmp.Diff(in, out); diff != "" {
			t.Errorf("clone differs (-want +got):\n%s", diff)
		}
		out.Endpoints[0] = "changed"
		if out.Metadata != nil {
			out.Metadata["a"] = "changed"
		}
		if in.Endpoints[0] != "grpc://h:1" || in.Metadata["a"] == "changed" {
			t.Errorf("the original was changed: %v", in)
		}
	}
}

func TestEqualChangesNothing(t *testing.T) {
	t.Parallel()
	a := &kregistry.ServiceInstance{ID: "1", Name: "user", Metadata: map[string]string{}, Endpoints: []string{"z://h:1", "a://h:1"}}
	b := &kregistry.ServiceInstance{ID: "1", Name: "user", Endpoints: []string{"a://h:1", "z://h:1"}}
	if !registry.Equal(a, b) {
		t.Error("order of endpoints or an empty map makes a difference")
	}
	if !slices.Equal(a.Endpoints, []string{"z://h:1", "a://h:1"}) {
		t.Errorf("Equal sorted the endpoints: %v", a.Endpoints)
	}
	for name, change := range map[string]func(*kregistry.ServiceInstance){
		"ID":         func(in *kregistry.ServiceInstance) { in.ID = "2" },
		"Name":       func(in *kregistry.ServiceInstance) { in.Name = "x" },
		"Version":    func(in *kregistry.ServiceInstance) { in.Version = "v2" },
		"Metadata":   func(in *kregistry.ServiceInstance) { in.Metadata = map[string]string{"": ""} },
		"Endpoints":  func(in *kregistry.ServiceInstance) { in.Endpoints = in.Endpoints[:1] },
		"repetition": func(in *kregistry.ServiceInstance) { in.Endpoints = []string{"a://h:1", "a://h:1"} },
	} {
		other := registry.Clone(b)
		change(other)
		if registry.Equal(a, other) {
			t.Errorf("a change of %s is not seen", name)
		}
	}
	if registry.Equal(a, nil) || !registry.Equal(nil, nil) {
		t.Error("nil is compared wrongly")
	}
}

func TestOpen(t *testing.T) {
	t.Parallel()
	var asked []string
	record := registry.Opener{Scheme: "local", Open: func(u *url.URL) (registry.Registry, error) {
		asked = append(asked, u.Scheme+" "+u.Path)
		return memory.New(), nil
	}}
	for _, name := range []string{"local", "LOCAL", "local:///var/reg", "/var/reg"} {
		if _, err := registry.Open(name, memory.Opener(), record); err != nil {
			t.Errorf("Open(%q): %v", name, err)
		}
	}
	if diff := cmp.Diff([]string{"local ", "local ", "local /var/reg", "local /var/reg"}, asked); diff != "" {
		t.Errorf("opened (-want +got):\n%s", diff)
	}
	if _, err := registry.Open("./reg", record); err != nil || !strings.HasSuffix(asked[len(asked)-1], "/registry/reg") {
		t.Errorf("a relative path opens %q, %v", asked[len(asked)-1], err)
	}
}

func TestOpenTellsWhatIsWrong(t *testing.T) {
	t.Parallel()
	broken := registry.Opener{Scheme: "broken", Open: func(*url.URL) (registry.Registry, error) { return nil, nil }}
	empty := registry.Opener{Scheme: "empty"}
	for _, c := range []struct {
		name string
		want []string
	}{
		{"etcd://h:1", []string{`"etcd://h:1"`, `"etcd"`, "memory", "broken"}},
		{"nothing", []string{`"nothing"`, "known here"}},
		{"", []string{"empty", "local"}},
		{"/a/path", []string{`"local"`, "known here"}},
		{"broken", []string{"no registry"}},
		{"empty", []string{"no Open function"}},
		{"memory://x", []string{"takes nothing after it"}},
		{"me mory:x", []string{"not a URL"}},
	} {
		_, err := registry.Open(c.name, memory.Opener(), broken, empty)
		if err == nil {
			t.Errorf("Open(%q) succeeded", c.name)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("Open(%q): the error does not say %s: %v", c.name, want, err)
			}
		}
	}
	if _, err := registry.Open("local"); err == nil || !strings.Contains(err.Error(), "no opener") {
		t.Errorf("without openers: %v", err)
	}
}

// TestOpenTellsHowPathsBegin has paths that were written like a scheme.
func TestOpenTellsHowPathsBegin(t *testing.T) {
	t.Parallel()
	opener := registry.Opener{Scheme: registry.SchemeLocal, Open: func(*url.URL) (registry.Registry, error) { return memory.New(), nil }}
	for name, want := range map[string]string{
		"reg":      "a path starts with / or ./, such as ./reg",
		"sub/reg":  "a path starts with / or ./, such as ./sub/reg",
		"~/reg":    "only a shell expands ~, such as $HOME/reg",
		"etcd://h": "",
	} {
		_, err := registry.Open(name, opener)
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "starts with") != (want != "") {
			t.Errorf("Open(%q): %v, want one with %q", name, err, want)
		}
	}
	if _, err := registry.Open("reg", memory.Opener()); err == nil || strings.Contains(err.Error(), "path") {
		t.Errorf("where paths are unknown: %v", err)
	}
}

func TestOpenedMemoryIsShared(t *testing.T) {
	t.Parallel()
	opener := memory.Opener()
	one, err := registry.Open("memory", opener)
	if err != nil {
		t.Fatal(err)
	}
	two, err := registry.Open("memory", opener)
	if err != nil || one != two {
		t.Errorf("a second Open gives another registry (%v)", err)
	}
}

func TestValidateNameLimits(t *testing.T) {
	t.Parallel()
	for _, name := range []string{"", strings.Repeat("x", registry.MaxName+1), "a/b", `a\b`, "a b", "a\x00", "\xff"} {
		if err := registry.ValidateName("Name", name); err == nil || !strings.Contains(err.Error(), "field Name") {
			t.Errorf("%q: %v", name, err)
		}
	}
	for _, name := range []string{"user", "user-admin", "User.v1_2", "käse", "a@b~c%", strings.Repeat("x", registry.MaxName)} {
		if err := registry.ValidateName("Name", name); err != nil {
			t.Errorf("%q: %v", name, err)
		}
	}
}
