// Package dns is a discovery over DNS: the addresses of a host name, or the
// targets of an SRV name.
//
//	hub := registry.NewHub(dns.New())     // name: "orders.example:9000"
//	hub := registry.NewHub(dns.NewSRV())  // name: "_grpc._tcp.orders.example" or "orders.example"
//
// A watch looks again every 30 s, and on Refresh, such as after a lost
// connection, at most every 5 s. A lookup that fails, or finds nothing, is an
// error, never an empty list: the last good list stays, and the watch tries
// again after 1 s, doubling to 30 s. Instances have no id.
//
// Of SRV targets those of the best priority are used that have an address; the
// weight becomes the instance's weight, shared by the addresses of a target.
// Without any weight all are equal.
//
// Defaults: scheme grpc, port 443 when a name has none (grpc's rule), the
// system's resolver, 5 s for a lookup. It is no Registrar and ignores the TTL
// of records, which Go's resolver does not tell.
package dns
