package main

import (
	"fmt"
	"io"
	"maps"
	"slices"
	"time"
)

// print prints the verdict for a reader.
func (r *verdict) print(out io.Writer) {
	fmt.Fprintf(out, "\n")
	if len(r.Users) == 1 {
		r.Users[0].print(out)
	} else {
		r.printUsers(out)
	}
	fmt.Fprintf(out, "\n%-18s%9s%11s%11s%11s%11s\n", "", "count", "mean", "p50", "p99", "max")
	for _, name := range []string{"granted", "rejected", "failed"} {
		printLatency(out, "limiter, "+name, r.Limiter[name])
	}
	for _, name := range []string{"GET granted", "GET rejected", "GET failed", "POST created", "POST failed"} {
		printLatency(out, name, r.Requests[name])
	}
	printLatency(out, "sent late by", r.Late)
	fmt.Fprintf(out, "\n")
	r.printProblems(out)
	r.printConclusion(out)
}

func (u *userVerdict) print(out io.Writer) {
	fmt.Fprintf(out, "%s: %d successes, and %d are allowed: one at once, and one for each %v of the\n", u.User, u.Granted, u.Allowed, interval)
	fmt.Fprintf(out, "%.1f s from the first request to the last success, by PostgreSQL's clock.\n", u.Seconds)
	if u.Granted > 1 {
		fmt.Fprintf(out, "The closest two: %.3f s, from sending the one to the answer of the next.\n", u.Closest)
	}
}

const maxUsersPrinted = 10

// printUsers prints a row for each user. How they are compared is what print says of one.
func (r *verdict) printUsers(out io.Writer) {
	fmt.Fprintf(out, "%-18s%9s%11s%11s%16s\n", "", "granted", "allowed", "in", "the closest two")
	for _, u := range r.Users[:min(len(r.Users), maxUsersPrinted)] {
		apart := "."
		if u.Granted > 1 {
			apart = fmt.Sprintf("%.3f s", u.Closest)
		}
		fmt.Fprintf(out, "%-18s%9d%11d%9.1f s%16s\n", u.User, u.Granted, u.Allowed, u.Seconds, apart)
	}
	fmt.Fprintf(out, "%-18s%9d%11d\n", fmt.Sprintf("all %d", len(r.Users)), r.Granted, r.Allowed)
}

func printLatency(out io.Writer, name string, l latency) {
	if l.Count > 0 {
		fmt.Fprintf(out, "%-18s%9d%11s%11s%11s%11s\n", name, l.Count, of(l.Mean), of(l.P50), of(l.P99), of(l.Max))
	}
}

func of(ms float64) string { return short(time.Duration(ms * float64(time.Millisecond))) }

// tooLate is how late requests may be sent until the load is not the one that was to be sent.
const tooLate = 100 * time.Millisecond

func (r *verdict) printProblems(out io.Writer) {
	for _, name := range slices.Sorted(maps.Keys(r.Failures)) {
		fmt.Fprintf(out, "%d × %s: %s.\n", r.Failures[name], name, explain(name))
	}
	for _, i := range r.Instances {
		if i.Skipped > 0 {
			fmt.Fprintf(out, "%d requests to %s were not sent, because %d others had no answer.\n", i.Skipped, i.Name, maxOpen)
		}
	}
	for _, u := range r.Users {
		if u.Excess > 0 {
			fmt.Fprintf(out, "%s had up to %d more successes than were allowed by then.\n", u.User, u.Excess)
		}
		if u.TooClose > 0 {
			fmt.Fprintf(out, "%s had %d successes less than %v after another.\n", u.User, u.TooClose, interval)
		} else if u.Granted > 1 && u.ClosestRuns < interval.Seconds()/2 {
			fmt.Fprintf(out, "The service ran two requests of %s within %.2f s: a request that is granted after a wait counts from its beginning.\n",
				u.User, u.ClosestRuns)
		}
	}
	if late := time.Duration(r.Late.P99 * float64(time.Millisecond)); late > tooLate {
		fmt.Fprintf(out, "One request of a hundred was sent more than %s late: the machine is too busy for this load.\n", short(late))
	}
	if r.WALBytes != nil {
		fmt.Fprintf(out, "PostgreSQL wrote %.1f kB to its log, for %d calls of the limiter.\n", float64(*r.WALBytes)/1e3, r.asked())
	}
}

// asked returns how often the limiters were asked.
func (r *verdict) asked() (calls int) {
	for _, l := range r.Limiter {
		calls += l.Count
	}
	return calls
}

func (r *verdict) printConclusion(out io.Writer) {
	undecided, gets := 0, 0
	for _, i := range r.Instances {
		undecided += i.GET.Failed
		gets += i.GET.Answered
	}
	switch {
	case r.TooMany:
		fmt.Fprintf(out, "FAILED: %v.\n", errTooMany)
	case gets == 0:
		fmt.Fprintf(out, "No GET was answered.\n")
	case undecided > 0:
		fmt.Fprintf(out, "The limit held, but %d of %d requests had no decision.\n", undecided, gets)
	default:
		fmt.Fprintf(out, "The limit held, and each of %d requests had its decision.\n", gets)
	}
}
