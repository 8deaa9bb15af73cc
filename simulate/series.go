package simulate

import (
	"math"
	"time"
)

// merged returns the series with at most limit points, by making one of several successive ones, and how long each is.
// Counts are sums. Waiting, Running and the quantiles are the largest of the points, which is an upper bound of what a
// quantile of all of them is; the mean is exact.
func (r *Result) merged(limit int) ([]Point, time.Duration) {
	return r.mergedBy((len(r.Series) + limit - 1) / limit)
}

// mergedBy is merged with n successive points made one.
func (r *Result) mergedBy(n int) ([]Point, time.Duration) {
	interval := max(r.Interval, 1)
	if n <= 1 {
		return r.Series, interval
	}
	points := make([]Point, 0, len(r.Series)/n+1)
	for i := 0; i < len(r.Series); i += n {
		p := r.Series[i]
		for _, next := range r.Series[i+1 : min(i+n, len(r.Series))] {
			p.Counts = p.plus(next.Counts)
			p.Waiting, p.Running = max(p.Waiting, next.Waiting), max(p.Running, next.Running)
			p.Latency = p.Latency.upper(next.Latency)
		}
		points = append(points, p)
	}
	if interval > math.MaxInt64/time.Duration(n) {
		return points, math.MaxInt64
	}
	return points, interval * time.Duration(n)
}

// plus returns the sum of c and d.
func (c Counts) plus(d Counts) Counts {
	c.Requests += d.Requests
	c.Offered += d.Offered
	c.Admitted += d.Admitted
	c.Queued += d.Queued
	c.Rejected += d.Rejected
	c.Succeeded += d.Succeeded
	c.Failed += d.Failed
	c.Calls += d.Calls
	c.Retried += d.Retried
	c.TriedAgain += d.TriedAgain
	c.Satisfied += d.Satisfied
	c.Unfinished += d.Unfinished
	return c
}

// minus returns what is more in c than in d.
func (c Counts) minus(d Counts) Counts {
	return c.plus(Counts{
		Requests: -d.Requests, Offered: -d.Offered, Admitted: -d.Admitted, Queued: -d.Queued, Rejected: -d.Rejected,
		Succeeded: -d.Succeeded, Failed: -d.Failed, Calls: -d.Calls, Retried: -d.Retried, TriedAgain: -d.TriedAgain,
		Satisfied: -d.Satisfied, Unfinished: -d.Unfinished,
	})
}

// upper returns quantiles that are at least those of q and o together.
func (q Quantiles) upper(o Quantiles) Quantiles {
	switch {
	case o.Count == 0:
		return q
	case q.Count == 0:
		return o
	}
	share := float64(o.Count) / (float64(q.Count) + float64(o.Count))
	return Quantiles{
		Count: q.Count + o.Count,
		Mean:  q.Mean + time.Duration(share*float64(o.Mean-q.Mean)),
		P50:   max(q.P50, o.P50), P90: max(q.P90, o.P90), P95: max(q.P95, o.P95), P99: max(q.P99, o.P99), P999: max(q.P999, o.P999), Max: max(q.Max, o.Max),
	}
}

// minus returns how much longer q is than o.
func (q Quantiles) minus(o Quantiles) Quantiles {
	return Quantiles{
		Count: q.Count - o.Count, Mean: q.Mean - o.Mean,
		P50: q.P50 - o.P50, P90: q.P90 - o.P90, P95: q.P95 - o.P95, P99: q.P99 - o.P99, P999: q.P999 - o.P999, Max: q.Max - o.Max,
	}
}

// A total is one of the counts of a Result, with what it is a share of.
type total struct {
	name  string // as in an Expectation and in JSON
	label string // as in a table
	count func(*Result) int64
	whole *total // nil if it is no share
	of    string // the whole, in words
}

var (
	requests = total{name: "requests", label: "Requests", count: func(r *Result) int64 { return r.Total.Requests }}
	offered  = total{name: "offered", label: "Executions offered", count: func(r *Result) int64 { return r.Total.Offered }}
	calls    = total{name: "calls", label: "Calls of the service", count: func(r *Result) int64 { return r.Total.Calls }}
)

// totals are the counts of a Result in the order of its tables.
var totals = []*total{
	&requests,
	{name: "satisfied", label: "satisfied", count: func(r *Result) int64 { return r.Total.Satisfied }, whole: &requests, of: "the requests"},
	{name: "unfinished", label: "unfinished", count: func(r *Result) int64 { return r.Total.Unfinished }, whole: &requests, of: "the requests"},
	&offered,
	{name: "admitted", label: "admitted", count: func(r *Result) int64 { return r.Total.Admitted }, whole: &offered, of: "the executions"},
	{name: "queued", label: "queued", count: func(r *Result) int64 { return r.Total.Queued }, whole: &offered, of: "the executions"},
	{name: "rejected", label: "rejected", count: func(r *Result) int64 { return r.Total.Rejected }, whole: &offered, of: "the executions"},
	{name: "succeeded", label: "succeeded", count: func(r *Result) int64 { return r.Total.Succeeded }, whole: &offered, of: "the executions"},
	{name: "failed", label: "failed", count: func(r *Result) int64 { return r.Total.Failed }, whole: &offered, of: "the executions"},
	{name: "tried_again", label: "tried again by clients", count: func(r *Result) int64 { return r.Total.TriedAgain }, whole: &offered, of: "the executions"},
	&calls,
	{name: "retried", label: "retried by the pipeline", count: func(r *Result) int64 { return r.Total.Retried }, whole: &calls, of: "the calls"},
}

// A quantile is one of the numbers of Quantiles.
type quantile struct {
	name  string // as in an Expectation and in JSON
	label string // as in a table
	value func(*Quantiles) time.Duration
}

var quantiles = []quantile{
	{"mean", "mean", func(q *Quantiles) time.Duration { return q.Mean }},
	{"p50", "p50", func(q *Quantiles) time.Duration { return q.P50 }},
	{"p90", "p90", func(q *Quantiles) time.Duration { return q.P90 }},
	{"p95", "p95", func(q *Quantiles) time.Duration { return q.P95 }},
	{"p99", "p99", func(q *Quantiles) time.Duration { return q.P99 }},
	{"p999", "p99.9", func(q *Quantiles) time.Duration { return q.P999 }},
	{"max", "max", func(q *Quantiles) time.Duration { return q.Max }},
}

// A length is one of the Quantiles of a Result.
type length struct {
	name  string
	label string
	of    func(*Result) *Quantiles
	none  string // why there are none
}

var lengths = []length{
	{"latency", "Latency", func(r *Result) *Quantiles { return &r.Latency }, "no execution succeeded"},
	{"wait", "Wait for a permit", func(r *Result) *Quantiles { return &r.Wait }, "no execution got a permit"},
	{"service", "Time in the service", func(r *Result) *Quantiles { return &r.Service }, "the service served no call"},
}
