package main

import (
	"math"
	"slices"
)

// interval is a median with the bounds of its 95 % confidence interval.
type interval struct {
	Median float64 `json:"median"`
	Low    float64 `json:"low"`
	High   float64 `json:"high"`
}

// medianOf returns the median of samples and its interval from order
// statistics: the ranks n/2 -+ 1.96*sqrt(n)/2 of the sorted samples (how
// many samples lie below the true median is binomial; this is its normal
// approximation). It supposes nothing about the distribution. Few samples give the range.
func medianOf(samples []float64) interval {
	n := len(samples)
	if n == 0 {
		return interval{Median: math.NaN(), Low: math.NaN(), High: math.NaN()}
	}
	sorted := slices.Sorted(slices.Values(samples))
	reach := 1.96 * math.Sqrt(float64(n)) / 2
	low := max(0, int(math.Floor(float64(n)/2-reach)))
	high := min(n-1, int(math.Ceil(float64(n)/2+reach)))
	return interval{Median: (sorted[(n-1)/2] + sorted[n/2]) / 2, Low: sorted[low], High: sorted[high]}
}
