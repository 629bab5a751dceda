package registry

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"strconv"
	"strings"

	kregistry "github.com/go-kratos/kratos/v2/registry"
)

// Endpoint is one parsed endpoint of an instance, such as
// "grpc://10.0.0.1:9000" or "grpc://[2001:db8::1]:9000".
type Endpoint struct {
	// Scheme is the part before "://", such as "grpc" or "grpcs".
	Scheme string
	// Host is the bare host: an IP without brackets, with its zone if it has
	// one, or a name.
	Host string
	// Port is 1 to 65535.
	Port int
}

// NewEndpoint builds an endpoint from its parts and checks them. The host may
// carry brackets, which are taken off.
func NewEndpoint(scheme, host string, port int) (Endpoint, error) {
	e := Endpoint{Scheme: scheme, Host: bareHost(host), Port: port}
	if err := e.check(); err != nil {
		return Endpoint{}, fmt.Errorf("endpoint of scheme %q, host %q, port %d: %w", scheme, host, port, err)
	}
	return e, nil
}

// ParseEndpoint reads an endpoint as it stands in a record. A path or query
// is ignored, as Kratos does. The zone of an IPv6 address is accepted in both
// spellings, "%25eth0" of URLs and the bare "%eth0".
func ParseEndpoint(raw string) (Endpoint, error) {
	e, err := parseEndpoint(raw)
	if err != nil {
		return Endpoint{}, fmt.Errorf("endpoint %q: %w", raw, err)
	}
	return e, nil
}

// Address is host:port to dial, with brackets around an IPv6 host.
func (e Endpoint) Address() string { return JoinHostPort(e.Host, e.Port) }

// String is the endpoint as it stands in a record: a URL.
func (e Endpoint) String() string {
	return (&url.URL{Scheme: e.Scheme, Host: e.Address()}).String()
}

// JoinHostPort is net.JoinHostPort that puts brackets around an IPv6 host
// exactly once, whether or not they are there already.
func JoinHostPort(host string, port int) string {
	return net.JoinHostPort(bareHost(host), strconv.Itoa(port))
}

func bareHost(host string) string {
	if strings.HasPrefix(host, "[") && strings.HasSuffix(host, "]") {
		return host[1 : len(host)-1]
	}
	return host
}

func parseEndpoint(raw string) (Endpoint, error) {
	scheme, rest, found := strings.Cut(raw, "://")
	if !found || scheme == "" {
		return Endpoint{}, errors.New(`no scheme; write it as "grpc://host:port"`)
	}
	if end := strings.IndexAny(rest, "/?#"); end >= 0 {
		rest = rest[:end]
	}
	// net/url refuses a bare zone, and Kratos's peers write the escaped one.
	rest = strings.ReplaceAll(rest, "%25", "%")
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return Endpoint{}, fmt.Errorf(`no host:port in it (%w); write it as "grpc://host:port", an IPv6 host in brackets`, err)
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return Endpoint{}, fmt.Errorf("port %q is not a number from 1 to 65535", port)
	}
	e := Endpoint{Scheme: scheme, Host: host, Port: int(number)}
	return e, e.check()
}

func (e Endpoint) check() error {
	var faults []error
	if e.Scheme == "" {
		faults = append(faults, errors.New(`the scheme is empty; use one such as "grpc"`))
	}
	if e.Port < 1 || e.Port > 65535 {
		faults = append(faults, fmt.Errorf("port %d is not from 1 to 65535; publish the port that was bound", e.Port))
	}
	switch {
	case e.Host == "":
		faults = append(faults, errors.New("the host is empty; nobody can dial it"))
	case strings.Contains(e.Host, ":"):
		if _, err := netip.ParseAddr(e.Host); err != nil {
			faults = append(faults, fmt.Errorf("host %q is not an IPv6 address: %w", e.Host, err))
		}
	case strings.ContainsAny(e.Host, " \t\r\n\"<>[]@\\^`{|}"):
		faults = append(faults, fmt.Errorf("host %q has characters that no host name has", e.Host))
	}
	return errors.Join(faults...)
}

// Endpoints returns the usable endpoints of an instance with the scheme (""
// is any), in the order of the record, each address once. Malformed ones of
// any scheme are left out and reported together in the error, so both results
// can be non-empty. It allocates; call it per list, not per pick.
func Endpoints(in *kregistry.ServiceInstance, scheme string) ([]Endpoint, error) {
	if in == nil {
		return nil, errors.New("the record is nil")
	}
	var (
		list   []Endpoint
		faults []error
	)
	for _, raw := range in.Endpoints {
		e, err := ParseEndpoint(raw)
		switch {
		case err != nil:
			faults = append(faults, err)
		case (scheme == "" || e.Scheme == scheme) && !contains(list, e):
			list = append(list, e)
		}
	}
	return list, errors.Join(faults...)
}

func contains(list []Endpoint, e Endpoint) bool {
	for _, other := range list {
		if other == e {
			return true
		}
	}
	return false
}

// Address is one place to dial: the endpoint and the instance that has it.
type Address struct {
	Endpoint Endpoint
	Instance *kregistry.ServiceInstance
}

// Addresses resolves a list for one scheme: the first usable endpoint of each
// instance, each host:port once, in the order of the list; instances that do
// not speak the scheme are left out silently. The events report each record
// with a malformed endpoint (RecordSkipped); the caller decides how often it
// passes them on. Nothing given is changed.
func Addresses(list []*kregistry.ServiceInstance, scheme string) ([]Address, []Event) {
	var (
		out    []Address
		events []Event
		seen   = make(map[string]struct{}, len(list))
	)
	for _, in := range list {
		usable, err := Endpoints(in, scheme)
		if err != nil {
			events = append(events, skipped(in, err))
		}
		if len(usable) == 0 {
			continue
		}
		address := usable[0].Address()
		if _, dup := seen[address]; dup {
			continue
		}
		seen[address] = struct{}{}
		out = append(out, Address{Endpoint: usable[0], Instance: in})
	}
	return out, events
}

func skipped(in *kregistry.ServiceInstance, err error) Event {
	e := Event{Kind: RecordSkipped, Err: err}
	if in != nil {
		e.Service, e.Instance = in.Name, in.ID
	}
	return e
}
