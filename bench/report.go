package main

import (
	"errors"
	"fmt"
	"slices"
)

// Budgets of the design, "Budgets".
const (
	maxAddedAllocs = 6
	maxRatio       = 1.10
	minPeak        = 1.00 // of raw grpc-go as it comes; missed when the interval lies below
	maxDrift       = 0.01 // of the control from 1.00
	judgedRounds   = 100  // fewer do not judge times
)

// errVoid is the end of a run whose control missed 1.00.
var errVoid = errors.New("the run is void")

// report is what a run found. Units are in the names of the fields.
type report struct {
	Machine machine       `json:"machine"`
	Rounds  int           `json:"rounds,omitempty"`
	Calls   int           `json:"calls,omitempty"`
	Callers int           `json:"callers"`
	Suites  []suiteReport `json:"suites,omitempty"`
	// Goroutines per unary call in flight, by peer.
	Goroutines []goroutineReport `json:"goroutines,omitempty"`
	Peak       []peakReport      `json:"peak,omitempty"`
	// Verdict has one sentence for each thing that is wrong.
	Verdict []string `json:"verdict"`
}

type suiteReport struct {
	Workload string       `json:"workload"`
	Lanes    []laneReport `json:"lanes"`
}

type laneReport struct {
	Name        string    `json:"name"`
	Control     bool      `json:"control,omitempty"`
	Allocs      float64   `json:"allocs_per_op"`
	AddedAllocs float64   `json:"added_allocs_per_op"`
	Bytes       float64   `json:"bytes_per_op"`
	AddedBytes  float64   `json:"added_bytes_per_op"`
	CPU         float64   `json:"cpu_us_per_op"`
	Ratio       *interval `json:"cpu_ratio,omitempty"`
}

type goroutineReport struct {
	Name string  `json:"name"`
	Each float64 `json:"per_call"`
}

type peakReport struct {
	Name  string   `json:"name"`
	Rate  float64  `json:"calls_per_second"`
	Ratio interval `json:"ratio"`
}

// add appends a suite's numbers and what they say about the budgets.
func (r *report) add(s suite) (void bool) {
	out := suiteReport{Workload: s.load.name}
	allocs := func(b block) float64 { return b.allocs }
	bytes := func(b block) float64 { return b.bytes }
	for _, l := range s.lanes {
		base := s.lanes[0]
		row := laneReport{
			Name: l.name, Control: l.control,
			Allocs: medianOf(l.of(allocs)).Median, Bytes: medianOf(l.of(bytes)).Median,
			CPU: medianOf(l.of(func(b block) float64 { return b.cpu })).Median,
		}
		row.AddedAllocs = row.Allocs - medianOf(base.of(allocs)).Median
		row.AddedBytes = row.Bytes - medianOf(base.of(bytes)).Median
		if l.base != nil {
			ratio := medianOf(l.ratios())
			row.Ratio = &ratio
		}
		out.Lanes = append(out.Lanes, row)
		void = r.judge(s, l, row) || void
	}
	r.Suites = append(r.Suites, out)
	return void
}

// judge compares a row with the budgets, which speak of unary calls, and the
// control with 1.00.
func (r *report) judge(s suite, l *lane, row laneReport) (void bool) {
	timed := r.Rounds >= judgedRounds
	if l.control && timed && (row.Ratio.Median < 1-maxDrift || row.Ratio.Median > 1+maxDrift) {
		r.Verdict = append(r.Verdict, fmt.Sprintf("%s: the control is at %.3f, not within %.2f of 1.00: the run is void", s.load.name, row.Ratio.Median, maxDrift))
		return true
	}
	if !l.budget || s.load.budget == 0 {
		return false
	}
	// Half an allocation is noise of the pools of grpc-go, which a collection empties.
	if row.AddedAllocs > s.load.budget+0.5 {
		r.Verdict = append(r.Verdict, fmt.Sprintf("%s: %s adds %.1f allocations, the budget is %.0f", s.load.name, l.name, row.AddedAllocs, s.load.budget))
	}
	if timed && row.Ratio.Median > maxRatio {
		r.Verdict = append(r.Verdict, fmt.Sprintf("%s: %s is at %.3f of raw with the same settings, the budget is %.2f", s.load.name, l.name, row.Ratio.Median, maxRatio))
	}
	return false
}

func (r *report) addGoroutines(name string, each float64) {
	r.Goroutines = append(r.Goroutines, goroutineReport{name, each})
	if ours(name) && each > 1 {
		r.Verdict = append(r.Verdict, fmt.Sprintf("%s has %.2f goroutines for a unary call in flight, the budget is grpc-go's one", name, each))
	}
}

// addPeak compares the rates with raw grpc-go's, round by round.
func (r *report) addPeak(lanes []*peakLane) {
	base := lanes[slices.IndexFunc(lanes, func(l *peakLane) bool { return l.peer.name == nameRaw })]
	for _, l := range lanes {
		ratios := make([]float64, 0, len(l.rates))
		for i, rate := range l.rates {
			ratios = append(ratios, rate/base.rates[i])
		}
		ratio := medianOf(ratios)
		r.Peak = append(r.Peak, peakReport{l.peer.name, medianOf(l.rates).Median, ratio})
		if ours(l.peer.name) && ratio.High < minPeak {
			r.Verdict = append(r.Verdict, fmt.Sprintf("%s peaks at %s of raw grpc-go, the budget is %.2f", l.peer.name, ratio, minPeak))
		}
	}
}
