// Package shield makes work resilient: timeouts, retries, hedges, breakers,
// limits, fallbacks, in any order, around any function. It knows nothing of gRPC.
//
//	orders, err := shield.New("orders",
//		shield.Timeout{After: 10 * time.Second}, // all attempts together
//		shield.Retry{Max: 2, Budget: budget},
//		shield.Breaker{},
//		shield.Timeout{After: 3 * time.Second}, // each attempt
//	)
//	err = orders.Do(ctx, fetch)
//
// The first layer is the outermost. Zero values of the layers are sensible
// defaults, told at their fields; no layer is there by itself. A shield without
// Timeout, Retry that fires, Hedge, Use and Fallback costs no allocation.
//
// It is not a queue, a cache or a scheduler, and it repeats only what the caller
// says may run twice.
package shield
