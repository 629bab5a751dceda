package registry

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
)

// Interface is what Advertise needs to know about a network interface.
type Interface struct {
	Name      string
	Up        bool
	Loopback  bool
	Addresses []netip.Addr
}

// InterfaceLister returns the interfaces of this machine, in the order in
// which they are tried.
type InterfaceLister func() ([]Interface, error)

// Advertise turns the address that a listener is bound to (host:port, such as
// net.Addr.String() gives) into the one to publish. An explicit host is kept
// verbatim, also a loopback one. A wildcard (empty, 0.0.0.0, ::) becomes the
// first global unicast address of an interface that is up, IPv4 before IPv6,
// IPv4 only for 0.0.0.0. A machine with nothing but loopback is an error: an
// address that only this machine can dial is published on request alone. A
// nil lister asks the system. IPv6 hosts are returned in brackets.
func Advertise(bind string, interfaces InterfaceLister) (string, error) {
	host, rawPort, err := net.SplitHostPort(bind)
	if err != nil {
		return "", fmt.Errorf("bind address %q is not host:port: %w", bind, err)
	}
	port, err := strconv.ParseUint(rawPort, 10, 16)
	if err != nil || port == 0 {
		return "", fmt.Errorf("bind address %q has no real port yet; ask after the listener is bound", bind)
	}
	wildcard, onlyIPv4 := wildcardHost(host)
	if !wildcard {
		return JoinHostPort(host, int(port)), nil
	}
	if interfaces == nil {
		interfaces = SystemInterfaces
	}
	found, err := interfaces()
	if err != nil {
		return "", fmt.Errorf("bind address %q is a wildcard and the interfaces cannot be listed: %w; %s", bind, err, remedy)
	}
	address, err := dialable(found, onlyIPv4)
	if err != nil {
		return "", fmt.Errorf("bind address %q is a wildcard: %w; %s", bind, err, remedy)
	}
	return JoinHostPort(address.String(), int(port)), nil
}

const remedy = "bind an explicit host such as 127.0.0.1:9000, or give the endpoint to publish"

// wildcardHost says whether a host means "every interface", and whether of
// IPv4 alone.
func wildcardHost(host string) (wildcard, onlyIPv4 bool) {
	if host == "" {
		return true, false
	}
	address, err := netip.ParseAddr(bareHost(host))
	if err != nil {
		return false, false
	}
	address = address.WithZone("")
	return address.Unmap().IsUnspecified(), address.Is4()
}

func dialable(interfaces []Interface, onlyIPv4 bool) (netip.Addr, error) {
	var six netip.Addr
	for _, i := range interfaces {
		if !i.Up || i.Loopback {
			continue
		}
		for _, address := range i.Addresses {
			address = address.Unmap()
			switch {
			case !address.IsGlobalUnicast():
			case address.Is4():
				return address, nil
			case !six.IsValid():
				six = address
			}
		}
	}
	if six.IsValid() && !onlyIPv4 {
		return six, nil
	}
	return netip.Addr{}, noAddress(interfaces, six.IsValid())
}

// noAddress says why none of the interfaces will do.
func noAddress(interfaces []Interface, six bool) error {
	if len(interfaces) == 0 {
		return errors.New("this machine has no network interface")
	}
	reasons := make([]string, 0, len(interfaces))
	for _, i := range interfaces {
		reason := "no global unicast address"
		switch {
		case !i.Up:
			reason = "down"
		case i.Loopback:
			reason = "loopback"
		case six:
			reason = "no IPv4 address"
		}
		reasons = append(reasons, i.Name+" ("+reason+")")
	}
	return fmt.Errorf("no interface has an address that others can dial: %s", strings.Join(reasons, ", "))
}

// SystemInterfaces lists the interfaces of this machine by index, the lowest
// first; one whose addresses cannot be read is listed without any.
func SystemInterfaces() ([]Interface, error) {
	system, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	slices.SortFunc(system, func(a, b net.Interface) int { return a.Index - b.Index })
	out := make([]Interface, 0, len(system))
	for _, s := range system {
		i := Interface{Name: s.Name, Up: s.Flags&net.FlagUp != 0, Loopback: s.Flags&net.FlagLoopback != 0}
		addresses, err := s.Addrs()
		if err != nil {
			addresses = nil
		}
		for _, a := range addresses {
			if prefix, err := netip.ParsePrefix(a.String()); err == nil {
				i.Addresses = append(i.Addresses, prefix.Addr())
			}
		}
		out = append(out, i)
	}
	return out, nil
}
