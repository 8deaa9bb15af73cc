package bench

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"
)

// printTables prints the results of all runs as Markdown.
func printTables(w io.Writer, results []*result) {
	for _, l := range loads {
		var of []*result
		for _, r := range results {
			if r.load.name == l.name {
				of = append(of, r)
			}
		}
		fmt.Fprintf(w, "\nRequests come %s.\n", l.name)
		if len(l.skews) > 1 {
			printGranted(w, l, of)
		}
		printRuns(w, of)
	}
}

// printGranted prints a row for each limiter: how many requests it granted at each skew, and to each of the two instances.
// Numbers above the limit are bold.
func printGranted(w io.Writer, l load, results []*result) {
	fmt.Fprint(w, "\n| limiter | clock |")
	for _, skew := range l.skews {
		fmt.Fprintf(w, " %s |", signed(skew))
	}
	fmt.Fprintf(w, "\n|---|---|%s\n", strings.Repeat("--:|", len(l.skews)))
	for of := range slices.Chunk(results, len(l.skews)) {
		fmt.Fprintf(w, "| %s | %s |", of[0].name, of[0].clock)
		for _, r := range of {
			n := fmt.Sprint(len(r.grants))
			if outside, server := r.allowed(); len(r.grants) > min(outside, server) {
				n = "**" + n + "**"
			}
			fmt.Fprintf(w, " %s (%d + %d) |", n, r.of(0), r.of(1))
		}
		fmt.Fprintln(w)
	}
}

func printRuns(w io.Writer, results []*result) {
	fmt.Fprintln(w, "\n| limiter | clock | skew | calls | granted | allowed by the outside clock | by the server's | rejected | deadlocks | other errors | p50 | p99 | slowest | shortest gap |")
	fmt.Fprintln(w, "|---|---|--:|--:|--:|--:|--:|--:|--:|---|--:|--:|--:|--:|")
	for _, r := range results {
		outside, server := r.allowed()
		fmt.Fprintf(w, "| %s | %s | %s | %d | %d | %d | %d | %d | %d | %s | %s | %s | %s | %s |\n",
			r.name, r.clock, signed(r.skew), r.calls, len(r.grants), outside, server, r.rejected, r.errors[deadlock], r.otherErrors(),
			milliseconds(r.quantile(0.5)), milliseconds(r.quantile(0.99)), milliseconds(r.quantile(1)), seconds(r.gap()))
	}
}

const deadlock = "40P01"

func (r *result) otherErrors() string {
	var all []string
	for _, word := range slices.Sorted(maps.Keys(r.errors)) {
		if word != deadlock {
			all = append(all, fmt.Sprintf("%s × %d", word, r.errors[word]))
		}
	}
	return strings.Join(all, ", ")
}

func signed(d time.Duration) string {
	if d > 0 {
		return "+" + d.String()
	}
	return d.String()
}

func milliseconds(d time.Duration) string { return fmt.Sprintf("%.1f ms", d.Seconds()*1000) }

func seconds(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) }
