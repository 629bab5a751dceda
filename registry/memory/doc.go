// Package memory is a registry inside one process, for tests and for fleets
// that run in one process.
//
//	reg := memory.New()
//	hub := registry.NewHub(reg)
//
// A change is seen at once. Records have no heartbeat and stay until
// Deregister: nothing can die without the process.
//
// It shares nothing between processes; use registry/local for that.
package memory
