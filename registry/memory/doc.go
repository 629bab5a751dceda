// Package memory is a registry inside one process, for tests and for fleets
// that run in one process.
//
//	reg := memory.New()
//	hub := registry.NewHub(reg)
//
// A change is seen at once. Records have no heartbeat and stay until
// Deregister: nothing can die without the process.
//
// Defaults: there is nothing to set. Each New is a registry of its own; all that
// one Opener opens is one and the same.
//
// It shares nothing between processes; use registry/local for that.
package memory
