package main

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// goroutines is the number of goroutines in the benchmarks of the tables.
const goroutines = 32

// order is the order of the contenders in each table.
var order = map[string][]string{
	"Postgres": {
		"floor-select", "floor-upsert", "floor-upsert-async", "demo-nowait", "demo-exclusion", "demo-upsert", "demo-upsert-rejected",
		"weir", "weir-async", "weir-block-100", "weir-rejected", "weir-rejected-cached",
	},
	"Redis": {
		"floor-ping", "floor-script", "redis_rate", "throttled", "ulule",
		"weir", "weir-block-100", "weir-rejected", "weir-rejected-cached",
	},
}

var inServer = regexp.MustCompile(fmt.Sprintf(`^(Postgres|Redis)/keys=(\d+)/by=[^/]+/goroutines=%d$`, goroutines))

// printTables prints a table for each server and number of keys.
func (m *measurements) printTables(w *strings.Builder) {
	type table struct {
		server string
		keys   int
	}
	tables := map[table][]subject{}
	for _, s := range m.subjects {
		if found := inServer.FindStringSubmatch(string(s)); found != nil {
			keys, _ := strconv.Atoi(found[2]) // digits
			t := table{found[1], keys}
			tables[t] = append(tables[t], s)
		}
	}
	sorted := slices.SortedFunc(maps.Keys(tables), func(a, b table) int {
		return cmp.Or(cmp.Compare(a.server, b.server), cmp.Compare(a.keys, b.keys))
	})
	for _, t := range sorted {
		fmt.Fprintf(w, "## %s, %s, %d goroutines\n\n", t.server, counted(t.keys), goroutines)
		fmt.Fprint(w, "| | ops/s | p50 | p99 | B/op | granted/s | failed |\n|---|--:|--:|--:|--:|--:|--:|\n")
		slices.SortStableFunc(tables[t], func(a, b subject) int { return cmp.Compare(place(t.server, a), place(t.server, b)) })
		for _, s := range tables[t] {
			by, _ := s.by()
			fmt.Fprintf(w, "| %s | %s | %s | %s | %s | %s | %s |\n", by,
				m.cell(s, "ops/s", rounded), m.cell(s, "p50-ns", duration), m.cell(s, "p99-ns", duration),
				m.cell(s, "B/op", rounded), m.cell(s, "granted/s", rounded), m.cell(s, "failed-%", percent))
		}
		fmt.Fprintln(w)
	}
}

// place returns the place of the subject's contender in the order.
func place(server string, s subject) int {
	by, _ := s.by()
	return slices.Index(order[server], by)
}

func (m *measurements) cell(s subject, unit string, format func(float64) string) string {
	v, ok := m.median(s, unit)
	if !ok {
		return ""
	}
	return format(v)
}

func counted(keys int) string {
	if keys == 1 {
		return "one hot key"
	}
	return rounded(float64(keys)) + " keys"
}

// rounded returns v with three significant digits and commas.
func rounded(v float64) string {
	if v >= 1000 {
		unit := math.Pow(10, math.Floor(math.Log10(v))-2)
		v = math.Round(v/unit) * unit
	}
	s := strconv.FormatFloat(v, 'f', 0, 64)
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return s
}

func duration(ns float64) string {
	switch {
	case ns < 1e3:
		return fmt.Sprintf("%.0f ns", ns)
	case ns < 1e6:
		return fmt.Sprintf("%.3g µs", ns/1e3)
	case ns < 1e9:
		return fmt.Sprintf("%.3g ms", ns/1e6)
	default:
		return fmt.Sprintf("%.3g s", ns/1e9)
	}
}

func percent(v float64) string { return fmt.Sprintf("%.3g %%", v) }
