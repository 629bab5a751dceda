// Package registry puts one layer in front of every service registry: a
// Registration writes and withdraws an instance so that a late or lost answer
// never leaves a ghost, and a Hub keeps the last good list of a service,
// whatever its backend does. The types are Kratos's, so any Kratos registry
// plugs in here, and ours plug into Kratos.
//
//	reg, err := registry.Open("local", local.Opener())
//	...
//	generation := registry.NewRegistration(reg, &kregistry.ServiceInstance{
//		ID: "orders-1", Name: "orders", Endpoints: []string{"grpc://10.0.0.1:9000"},
//	})
//	err = generation.Register(ctx)
//	defer generation.Deregister(ctx)
//
//	hub := registry.NewHub(reg)
//	cancel := hub.Subscribe("orders", func(s registry.Snapshot) { ... })
//
// Advertise turns the address of a listener into the one to publish;
// Endpoints and Addresses read the endpoints of records.
//
// Defaults: an empty list after a non-empty one is held (HoldEmpty); a lost
// watch is opened again after 0.1 s, doubling to 3 s; one GetService may take
// 3 s; Deregister is bounded by its ctx, or 3 s.
//
// It is not a registry itself: those are in the folders below. It has no
// heartbeat (backends have), and it neither resolves for grpc nor picks
// instances.
package registry
