package registry_test

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/materpc/materpc/registry"
)

func iface(name string, up, loopback bool, addresses ...string) registry.Interface {
	i := registry.Interface{Name: name, Up: up, Loopback: loopback}
	for _, a := range addresses {
		i.Addresses = append(i.Addresses, netip.MustParseAddr(a))
	}
	return i
}

func lister(list ...registry.Interface) registry.InterfaceLister {
	return func() ([]registry.Interface, error) { return list, nil }
}

var loopback = iface("lo", true, true, "127.0.0.1", "::1")

func TestCaseB48WildcardBindAdvertisesAnUpInterface(t *testing.T) {
	t.Parallel()
	office := lister(loopback, iface("eth0", false, false, "10.9.9.9"),
		iface("eth1", true, false, "fe80::1", "169.254.1.1", "2001:db8::7", "10.0.0.7"), iface("eth2", true, false, "10.0.0.8"))
	onlySix := lister(loopback, iface("eth0", true, false, "fe80::1", "2001:db8::7"))
	for _, c := range []struct {
		name, bind string
		interfaces registry.InterfaceLister
		want       string
	}{
		{"IPv4 wildcard", "0.0.0.0:9000", office, "10.0.0.7:9000"},
		{"empty host", ":9000", office, "10.0.0.7:9000"},
		{"IPv6 wildcard", "[::]:9000", office, "10.0.0.7:9000"},
		{"IPv6 only", "[::]:9000", onlySix, "[2001:db8::7]:9000"},
		{"explicit loopback stays", "127.0.0.1:9000", office, "127.0.0.1:9000"},
		{"explicit IPv6 stays", "[::1]:9000", office, "[::1]:9000"},
		{"explicit zone stays", "[fe80::1%eth0]:9000", office, "[fe80::1%eth0]:9000"},
		{"explicit name stays", "svc.local:9000", office, "svc.local:9000"},
		{"explicit address of a down interface stays", "10.9.9.9:9000", office, "10.9.9.9:9000"},
	} {
		got, err := registry.Advertise(c.bind, c.interfaces)
		if err != nil || got != c.want {
			t.Errorf("%s: Advertise(%q) = %q, %v; want %q", c.name, c.bind, got, err, c.want)
		}
	}
}

func TestCaseB48NoDialableAddressIsAnErrorWithCauseAndRemedy(t *testing.T) {
	t.Parallel()
	cause := errors.New("no permission")
	for _, c := range []struct {
		name, bind string
		interfaces registry.InterfaceLister
		want       []string
	}{
		{"only loopback", "0.0.0.0:9000", lister(loopback), []string{"0.0.0.0:9000", "lo (loopback)", "bind an explicit host"}},
		{"only down", ":9000", lister(loopback, iface("eth0", false, false, "10.0.0.7")), []string{"eth0 (down)", "lo (loopback)"}},
		{"only link-local", ":9000", lister(iface("eth0", true, false, "fe80::1")), []string{"eth0 (no global unicast address)"}},
		{"IPv4 bind, IPv6 machine", "0.0.0.0:9000", lister(iface("eth0", true, false, "2001:db8::7")), []string{"eth0 (no IPv4 address)"}},
		{"no interface", ":9000", lister(), []string{"no network interface"}},
		{"unreadable", ":9000", func() ([]registry.Interface, error) { return nil, cause }, []string{"no permission", "bind an explicit host"}},
		{"not bound yet", "0.0.0.0:0", lister(loopback), []string{"no real port yet"}},
		{"not bound yet, explicit", "127.0.0.1:0", lister(loopback), []string{"no real port yet"}},
		{"no port", "127.0.0.1", lister(loopback), []string{"127.0.0.1", "not host:port"}},
	} {
		got, err := registry.Advertise(c.bind, c.interfaces)
		if err == nil || got != "" {
			t.Errorf("%s: Advertise(%q) = %q, %v; want an error", c.name, c.bind, got, err)
			continue
		}
		for _, want := range c.want {
			if !strings.Contains(err.Error(), want) {
				t.Errorf("%s: the error does not say %q: %v", c.name, want, err)
			}
		}
	}
}

func TestInvariant10PublishedIsNotBound(t *testing.T) {
	t.Parallel()
	listener, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = listener.Close() }()
	published, err := registry.Advertise(listener.Addr().String(), lister(iface("eth0", true, false, "10.0.0.7")))
	if err != nil {
		t.Fatal(err)
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	if want := net.JoinHostPort("10.0.0.7", port); published != want {
		t.Errorf("published %q, want %q", published, want)
	}
}

func TestSystemInterfacesHaveLoopback(t *testing.T) {
	t.Parallel()
	list, err := registry.SystemInterfaces()
	if err != nil {
		t.Fatal(err)
	}
	for _, i := range list {
		if i.Loopback && i.Up && len(i.Addresses) > 0 {
			return
		}
	}
	t.Errorf("no loopback interface with an address in %v", list)
}
