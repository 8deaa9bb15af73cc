package main

import (
	"fmt"
	"strings"
)

// A promise is that a contender is so many times as fast as others, all of them. If of is empty, its time for
// a call is below least, in nanoseconds, asked by one goroutine.
type promise struct {
	what   string
	server string
	keys   int
	by     string
	of     []string
	least  float64
}

var promises = []promise{
	{"a decision is as fast as an empty script", "Redis", 1, "weir-alone", []string{"floor-script"}, 0.75},
	{"a decision is as fast as an empty script", "Redis", 10_000, "weir-alone", []string{"floor-script"}, 0.75},
	{"and faster than the peers", "Redis", 1, "weir-alone", []string{"redis_rate", "throttled", "ulule"}, 1},
	{"and faster than the peers", "Redis", 10_000, "weir-alone", []string{"redis_rate", "throttled", "ulule"}, 1},
	{"coalescing", "Redis", 1, "weir", []string{"weir-alone"}, 2.5},
	{"blocks of 100", "Redis", 1, "weir-block-100", []string{"weir-alone"}, 10},
	{"an exhausted key that is remembered", "Redis", 1, "weir-rejected-cached", nil, 200},

	{"a decision is as fast as an upsert", "Postgres", 1, "weir-alone", []string{"floor-upsert"}, 0.8},
	{"a decision is as fast as an upsert", "Postgres", 10_000, "weir-alone", []string{"floor-upsert"}, 0.8},
	{"the same, asynchronous commit", "Postgres", 1, "weir-alone-async", []string{"floor-upsert-async"}, 0.8},
	{"the same, asynchronous commit", "Postgres", 10_000, "weir-alone-async", []string{"floor-upsert-async"}, 0.8},
	{"a rejection is faster than a write", "Postgres", 1, "weir-alone-rejected", []string{"weir-alone"}, 8},
	{"coalescing", "Postgres", 1, "weir", []string{"weir-alone"}, 15},
	{"blocks of 100", "Postgres", 1, "weir-block-100", []string{"weir-alone"}, 50},
	{"an exhausted key that is remembered", "Postgres", 1, "weir-rejected-cached", nil, 200},
}

// printPromises prints what became of each promise about which something was measured, and tells whether all
// of these are kept.
func (m measurements) printPromises(w *strings.Builder) bool {
	fmt.Fprint(w, "| promised | | measured | at least | |\n|---|---|--:|--:|---|\n")
	all := true
	for _, p := range promises {
		about := fmt.Sprintf("%s, %s: %s", p.server, counted(p.keys), p.what)
		if len(p.of) == 0 {
			if ns, ok := m.median(subject{p.server, p.keys, p.by, 1}, "ns/op"); ok {
				all = printPromise(w, about, p.by, fmt.Sprintf("%.0f ns", ns), fmt.Sprintf("less than %.0f ns", p.least), ns < p.least) && all
			}
			continue
		}
		for _, of := range p.of {
			ours, ok := m.median(subject{p.server, p.keys, p.by, swarm}, "ops/s")
			theirs, both := m.median(subject{p.server, p.keys, of, swarm}, "ops/s")
			if ok && both {
				kept := printPromise(w, about, p.by+" ÷ "+of, fmt.Sprintf("%.3g ×", ours/theirs), fmt.Sprintf("%g ×", p.least), ours >= p.least*theirs)
				all = kept && all
			}
		}
	}
	return all
}

func printPromise(w *strings.Builder, about, who, measured, least string, kept bool) bool {
	fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", about, who, measured, least, map[bool]string{true: "kept", false: "**missed**"}[kept])
	return kept
}
