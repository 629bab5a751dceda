package registry_test

import (
	"net/url"
	"strings"
	"testing"

	kregistry "github.com/go-kratos/kratos/v2/registry"
	"github.com/google/go-cmp/cmp"

	"github.com/materpc/materpc/registry"
)

func TestCaseB49IPv6HostsGetBracketsExactlyOnce(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ host, bare, target string }{
		{"2001:db8::1", "2001:db8::1", "[2001:db8::1]:9000"},
		{"[2001:db8::1]", "2001:db8::1", "[2001:db8::1]:9000"},
		{"::1", "::1", "[::1]:9000"},
		{"fe80::1%eth0", "fe80::1%eth0", "[fe80::1%eth0]:9000"},
		{"10.0.0.1", "10.0.0.1", "10.0.0.1:9000"},
		{"svc.local", "svc.local", "svc.local:9000"},
	} {
		built, err := registry.NewEndpoint("grpc", c.host, 9000)
		if err != nil {
			t.Errorf("NewEndpoint(%q): %v", c.host, err)
			continue
		}
		back, err := registry.ParseEndpoint(built.String())
		if err != nil {
			t.Errorf("ParseEndpoint(%q): %v", built, err)
			continue
		}
		if back != built || back.Host != c.bare || back.Address() != c.target {
			t.Errorf("%q: round trip gives %+v to dial as %q, want host %q, target %q", c.host, back, back.Address(), c.bare, c.target)
		}
		// Kratos's peers read endpoints with net/url.
		parsed, err := url.Parse(built.String())
		if err != nil || parsed.Host != c.target {
			t.Errorf("net/url reads %q as %v, %v", built, parsed, err)
		}
	}
}

func TestParseEndpoint(t *testing.T) {
	t.Parallel()
	for raw, want := range map[string]registry.Endpoint{
		"grpc://10.0.0.1:9000":                {Scheme: "grpc", Host: "10.0.0.1", Port: 9000},
		"grpc://10.0.0.1:9000?isSecure=false": {Scheme: "grpc", Host: "10.0.0.1", Port: 9000},
		"grpcs://svc:443/path#x":              {Scheme: "grpcs", Host: "svc", Port: 443},
		"grpc://[fe80::1%eth0]:1":             {Scheme: "grpc", Host: "fe80::1%eth0", Port: 1},
		"grpc://0.0.0.0:9000":                 {Scheme: "grpc", Host: "0.0.0.0", Port: 9000},
	} {
		if got, err := registry.ParseEndpoint(raw); err != nil || got != want {
			t.Errorf("ParseEndpoint(%q) = %+v, %v; want %+v", raw, got, err, want)
		}
	}
	for _, raw := range []string{
		"", "grpc", "grpc://", "://h:1", "grpc://:9000", "grpc://h", "grpc://h:0", "grpc://h:65536", "grpc://h:x", "grpc://h:-1",
		"grpc://2001:db8::1:9000", "grpc://[[::1]]:1", "grpc://[::zz]:1", "grpc://a b:1", "10.0.0.1:9000", "grpc://u@h:1",
	} {
		got, err := registry.ParseEndpoint(raw)
		if err == nil {
			t.Errorf("ParseEndpoint(%q) = %+v, want an error", raw, got)
		} else if !strings.Contains(err.Error(), `"`+raw+`"`) {
			t.Errorf("the error does not name the value %q: %v", raw, err)
		}
	}
}

func FuzzParseEndpoint(f *testing.F) {
	for _, seed := range []string{"grpc://10.0.0.1:9000", "grpc://[fe80::1%25eth0]:1", "grpc://:9000", "x://[::]:65535?a#b"} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, raw string) {
		e, err := registry.ParseEndpoint(raw)
		if err != nil {
			return
		}
		if _, err := registry.NewEndpoint(e.Scheme, e.Host, e.Port); err != nil {
			t.Errorf("%q is parsed but cannot be built: %v", raw, err)
		}
	})
}

func TestCaseB40BadAndDuplicateRecordsAreSkippedOneByOne(t *testing.T) {
	t.Parallel()
	record := func(id string, endpoints ...string) *kregistry.ServiceInstance {
		return &kregistry.ServiceInstance{ID: id, Name: "user", Endpoints: endpoints}
	}
	list := []*kregistry.ServiceInstance{
		record("a", "grpc://10.0.0.1:9000"),
		record("b", "grpc://10.0.0.1:9000"),
		nil, // what is left of a record whose JSON is broken
		record("c", "http://10.0.0.3:8000"),
		record("d", "grpc://:9000"),
	}
	addresses, events := registry.Addresses(list, "grpc")
	if len(addresses) != 1 || addresses[0].Endpoint.Address() != "10.0.0.1:9000" || addresses[0].Instance.ID != "a" {
		t.Errorf("addresses are %+v", addresses)
	}
	if len(events) != 2 || events[0].Kind != registry.RecordSkipped || events[1].Instance != "d" {
		t.Errorf("events are %v", events)
	}
	addresses, _ = registry.Addresses(append(list, record("e", "grpc://10.0.0.5:9000")), "grpc")
	if len(addresses) != 2 {
		t.Errorf("with a further good record the addresses are %+v", addresses)
	}
}

func TestEndpointsKeepsTheGoodOnesInOrder(t *testing.T) {
	t.Parallel()
	in := &kregistry.ServiceInstance{Endpoints: []string{"grpc://b:2", "bad", "http://x:1", "grpc://a:1", "grpc://b:2", "grpc://:3"}}
	got, err := registry.Endpoints(in, "grpc")
	want := []registry.Endpoint{{Scheme: "grpc", Host: "b", Port: 2}, {Scheme: "grpc", Host: "a", Port: 1}}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("endpoints (-want +got):\n%s", diff)
	}
	if err == nil || !strings.Contains(err.Error(), `"bad"`) || !strings.Contains(err.Error(), `"grpc://:3"`) {
		t.Errorf("the error does not name both bad ones: %v", err)
	}
}
