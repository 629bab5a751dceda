// Package ewma keeps the latency and the success ratio of one peer as
// exponentially weighted moving averages in a single atomic word.
//
//	stat.Reset(now)
//	stat.Observe(now, 12e6, true)    // one good result after 12 ms
//	v := stat.Load()                 // v.Latency, v.Success, v.Results
//
// The time constant is 600 ms (see Tau). It is a pure core: no clock, no
// goroutine, no lock, no allocation. It is not a histogram: it knows no
// percentiles and forgets on purpose.
package ewma
