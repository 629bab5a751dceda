// Package static is a discovery with a fixed list, for services whose
// addresses are known.
//
//	d, err := static.Parse("10.0.0.1:9000,10.0.0.2:9000?weight=50")
//	hub := registry.NewHub(d)
//
// Defaults: scheme grpc, no weight (each client's default). The list never
// changes, and every service name has it. Instances have no id: an address
// says nothing about who listens there.
//
// It is no Registrar, and it checks nobody's health.
package static
