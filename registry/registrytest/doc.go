// Package registrytest is one conformance suite for every registry backend,
// with faults.
//
//	func TestRegistry(t *testing.T) {
//		registrytest.Run(t, registrytest.Backend{
//			Name:   "memory",
//			Bubble: true,
//			Within: 200 * time.Millisecond,
//			New:    func(*testing.T) registrytest.Store { ... },
//		})
//	}
//
// A check is a subtest TestRegistry/<backend>/<group>/<check>. The groups
// basic, watch and life look at the backend alone; generation and hub look at
// registry.Registration and registry.Hub over it, with faults put in between
// by Faulty; fault needs the controls of a Store (Kill, Wipe, Garbage), and its
// checks are run for a backend whose Store has them.
//
// Defaults: Within is 1 s. Without Expiry records are taken to stay for ever,
// without Bubble the checks run in real time, and a control of Store that is
// nil leaves out the checks that need it.
//
// It is for tests only. It measures no speed.
package registrytest
