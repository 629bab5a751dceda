package grpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"

	kregistry "github.com/go-kratos/kratos/v2/registry"

	"github.com/materpc/materpc/registry/dns"
	"github.com/materpc/materpc/registry/static"
)

// target is a parsed dial target.
type target struct {
	text      string // as grpc-go gets it
	scheme    string
	name      string   // what the target names: a service, a host, a path
	addresses []string // direct, passthrough
	server    string   // dns: the DNS server to ask, else the system's
}

// Schemes of targets.
const (
	schemeDiscovery   = "discovery"
	schemeDirect      = "direct"
	schemePassthrough = "passthrough"
	schemeStatic      = "static"
	schemeDNS         = "dns"
	schemeSRV         = "dns+srv"
	schemeUnix        = "unix"
	schemeAbstract    = "unix-abstract"
)

const knownSchemes = "discovery:///NAME, direct:///HOST:PORT,HOST:PORT, static:///HOST:PORT?weight=N,HOST:PORT, dns:///HOST:PORT, dns+srv:///NAME, passthrough:///ADDRESS, unix:PATH, unix-abstract:NAME or HOST:PORT"

// parseTarget reads a dial target. grpc-go itself would take an unknown scheme
// for a host name; here it is an error.
func parseTarget(text string) (target, error) {
	if text == "" {
		return target{}, fmt.Errorf("target %q: is empty; want %s", text, knownSchemes)
	}
	scheme, rest, found := strings.Cut(text, ":")
	if found && rest == "" {
		return target{}, fmt.Errorf("target %q: nothing stands behind the colon; want HOST:PORT, or %s", text, knownSchemes)
	}
	if !found || !isScheme(scheme, rest) {
		if _, _, err := net.SplitHostPort(text); err != nil && strings.Contains(text, ":") {
			return target{}, fmt.Errorf("target %q: is no host:port (%w); want %s", text, err, knownSchemes)
		}
		return target{text: "dns:///" + text, scheme: schemeDNS, name: text}, nil
	}
	t := target{text: text, scheme: scheme}
	switch scheme {
	case schemeUnix, schemeAbstract:
		t.name = strings.TrimPrefix(rest, "//")
	case schemeDiscovery, schemeDirect, schemePassthrough, schemeStatic, schemeDNS, schemeSRV:
		u, err := url.Parse(text)
		if err != nil {
			return target{}, fmt.Errorf("target %q: %w; want %s", text, err, knownSchemes)
		}
		t.name = strings.TrimPrefix(u.Path, "/")
		if u.Opaque != "" {
			t.name = u.Opaque
		}
		if scheme == schemeStatic && u.RawQuery != "" { // weights, in the middle of the list or at its end
			t.name += "?" + u.RawQuery
		}
		t.server = u.Host
		if scheme != schemeDNS && scheme != schemeSRV && u.Host != "" {
			return target{}, fmt.Errorf("target %q: %q stands where an authority would; write %s:///%s", text, u.Host, scheme, u.Host)
		}
	case "xds":
		return target{}, fmt.Errorf("target %q: xds brings a resolver, a balancer and a chain of its own; dial it with grpc-go, or use %s", text, knownSchemes)
	default:
		return target{}, fmt.Errorf("target %q: scheme %q is unknown; want %s", text, scheme, knownSchemes)
	}
	return t, t.check()
}

// isScheme tells scheme:rest from host:port.
func isScheme(scheme, rest string) bool {
	if strings.HasPrefix(rest, "//") || scheme == schemeUnix || scheme == schemeAbstract {
		return true
	}
	if _, err := strconv.ParseUint(rest, 10, 16); err == nil || scheme == "" {
		return false
	}
	switch scheme {
	case schemeDNS, schemeSRV, schemePassthrough, schemeDirect, schemeStatic, schemeDiscovery: // dns:host:port is gRPC's own spelling
		return true
	}
	return !strings.ContainsAny(scheme, ".[") && !strings.Contains(rest, ":")
}

func (t *target) check() error {
	if t.name == "" {
		return fmt.Errorf("target %q: names nothing; want %s", t.text, knownSchemes)
	}
	switch t.scheme {
	case schemeStatic:
		if _, err := static.Parse(t.name); err != nil {
			return fmt.Errorf("target %q: %w; want static:///HOST:PORT?weight=N,HOST:PORT", t.text, err)
		}
	case schemePassthrough:
		t.addresses = []string{t.name}
	case schemeDirect:
		var faults []error
		for address := range strings.SplitSeq(t.name, ",") {
			faults = append(faults, checkAddress(address))
			t.addresses = append(t.addresses, address)
		}
		if err := errors.Join(faults...); err != nil {
			return fmt.Errorf("target %q: %w; want direct:///HOST:PORT,HOST:PORT with IPv6 hosts in brackets", t.text, err)
		}
	}
	return nil
}

// checkAddress wants a host and a port number.
func checkAddress(address string) error {
	host, port, err := net.SplitHostPort(address)
	switch number, failure := strconv.ParseUint(port, 10, 16); {
	case err != nil:
		return err
	case host == "" || port == "" || port == "0":
		return fmt.Errorf("address %s: host or port is missing", address)
	case failure != nil || number == 0:
		return fmt.Errorf("address %s: port %q is not 1 to 65535", address, port)
	}
	return nil
}

// authority is the default :authority and TLS name of the connection: the
// service for discovery (Kratos's rule), else a host; never a joined list.
func (t *target) authority() string {
	switch t.scheme {
	case schemeDiscovery:
		return url.PathEscape(t.name)
	case schemeUnix, schemeAbstract:
		return "localhost"
	case schemeDirect:
		return t.addresses[0]
	case schemeStatic:
		first, _, _ := strings.Cut(t.name, ",")
		first, _, _ = strings.Cut(first, "?")
		if _, address, ok := strings.Cut(first, "://"); ok {
			return address
		}
		return first
	}
	return t.name
}

// serverName is the TLS name for one address.
func (t *target) serverName(address string) string {
	if t.scheme == schemeDiscovery {
		return t.name
	}
	if t.scheme == schemeDirect || t.scheme == schemeStatic {
		return address
	}
	return ""
}

// discovery returns what finds the instances of targets that name hosts.
func (t *target) discovery(scheme string) kregistry.Discovery {
	switch t.scheme {
	case schemeStatic:
		items := strings.Split(t.name, ",")
		for i, item := range items {
			if !strings.Contains(item, "://") {
				items[i] = scheme + "://" + item
			}
		}
		d, err := static.Parse(strings.Join(items, ","))
		if err != nil {
			return nil // check has parsed it
		}
		return d
	case schemeDNS:
		return dns.New(dns.WithScheme(scheme), dns.WithResolver(t.dnsServer()))
	case schemeSRV:
		return dns.NewSRV(dns.WithScheme(scheme), dns.WithResolver(t.dnsServer()))
	}
	return nil
}

// dnsServer is the one in the authority of the target: dns://SERVER[:PORT]/HOST.
func (t *target) dnsServer() *net.Resolver {
	if t.server == "" {
		return net.DefaultResolver
	}
	address := t.server
	if _, _, err := net.SplitHostPort(address); err != nil {
		address = net.JoinHostPort(strings.Trim(address, "[]"), "53")
	}
	return &net.Resolver{PreferGo: true, Dial: func(ctx context.Context, network, _ string) (net.Conn, error) {
		var dialer net.Dialer
		return dialer.DialContext(ctx, network, address)
	}}
}

// proxied reports whether grpc's rule for proxy environment variables applies.
func (t *target) proxied() bool { return t.scheme == schemeDNS || t.scheme == schemePassthrough }

// destination is the default name of the called service.
func (t *target) destination() string {
	if t.scheme == schemeDirect || t.scheme == schemeStatic {
		return t.authority()
	}
	return t.name
}
