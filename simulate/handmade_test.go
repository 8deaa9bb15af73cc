package simulate

import (
	"math"
	"time"
)

// overload is a handmade result: ten minutes of requests, of which more than the limiter lets through from minute 3 to 6.
func overload(limit float64) *Result {
	r := &Result{
		Pipeline: "orders", Seed: 1, For: 10 * time.Minute, Instances: 3, Ended: 10*time.Minute + 2530*time.Millisecond,
		Assumed: []string{
			"Policy partners/quota is kept in a store: here its limiters are in the memory of one process.",
			`The function "tenant" that the program registers returns the key of the request.`,
		},
		Interval:   5 * time.Second,
		Strategies: []string{"orders/RateLimiter", "orders/CircuitBreaker", "orders/Timeout"},
		Rejections: map[string]int64{"orders/CircuitBreaker": 41},
		open:       true, keyed: map[string]*keyCounts{},
	}
	var number int64
	for i := range 121 {
		at := time.Duration(i) * r.Interval
		x := float64(i) / 12
		rate := 400 + 150*math.Sin(x)
		if x >= 3 && x < 6 {
			rate += 500
		}
		if i == 120 {
			rate = 0
		}
		n := int64(rate * 5)
		p := Point{At: at}
		p.Offered, p.Requests = n, n
		p.Admitted = min(n, int64(limit*5))
		p.Rejected = n - p.Admitted
		if x >= 4 && x < 4.5 {
			p.Failed = p.Admitted / 4
		}
		p.Succeeded, p.Satisfied, p.Calls = p.Admitted-p.Failed, p.Admitted-p.Failed, p.Admitted
		p.Running = p.Admitted / 100
		if p.Rejected > 0 {
			p.Queued, p.Waiting = p.Admitted/2, 50
		}
		if p.Succeeded > 0 {
			base := 20*time.Millisecond + time.Duration(p.Running)*300*time.Microsecond
			p.Latency = Quantiles{Count: p.Succeeded, Mean: base, P50: base, P90: 2 * base, P95: 5 * base / 2, P99: 3*base + time.Duration(p.Waiting)*2*time.Millisecond, P999: 5 * base, Max: 9 * base}
		}
		for k := range n {
			if k < p.Succeeded {
				r.satisfied.set(number + k)
			}
		}
		number += n
		r.Total = r.Total.plus(p.Counts)
		r.Latency = r.Latency.upper(p.Latency)
		r.Series = append(r.Series, p)
	}
	r.Rejections["orders/RateLimiter"] = r.Total.Rejected - 41
	r.Failures = map[string]int64{"orders/Timeout": 90, "the service failed": r.Total.Failed - 90}
	r.Wait = Quantiles{Count: r.Total.Admitted, Mean: 1250 * time.Microsecond, P90: 4 * time.Millisecond, P95: 6 * time.Millisecond, P99: 61200 * time.Microsecond, P999: 98 * time.Millisecond, Max: 100 * time.Millisecond}
	r.Keys = KeyResult{Count: 1000, Jain: 0.9182, Starved: 3, Worst: []KeyCounts{
		{Key: "198.51.100.7", Offered: 1204, Admitted: 3, Rejected: 1201, Fair: 271.3},
		{Key: "203.0.113.99", Offered: 77, Admitted: 60, Rejected: 17, Fair: 77},
	}}
	r.keyed["198.51.100.7"] = &keyCounts{offered: 1204, admitted: int64(limit / 200), rejected: 1204 - int64(limit/200)}
	r.keyed["203.0.113.99"] = &keyCounts{offered: 77, admitted: 60, rejected: 17}
	r.keyed["192.0.2.1"] = &keyCounts{offered: 99, admitted: 99 - int64(limit/10), rejected: int64(limit / 10)}
	r.Most = []Most{
		{Window: time.Second, Permits: int64(limit * 1.5), At: 180*time.Second + 250*time.Millisecond, Key: "192.0.2.1", KeyPermits: 12, KeyAt: 4 * time.Second},
		{Window: time.Minute, Permits: int64(limit * 60), At: 3 * time.Minute, Key: "192.0.2.1", KeyPermits: 99, KeyAt: 0},
	}
	r.ComeBacks = ComeBacks{Count: 1203, Admitted: 1100}
	return r
}

// burst is a handmade result of a limiter under a burst: two seconds of intervals of 50 ms, in which admit says how many of
// those offered are admitted.
func burst(admit func(i int, offered int64) int64) *Result {
	r := &Result{Pipeline: "api", For: 4 * time.Second, Instances: 1, Ended: 4 * time.Second, Interval: 50 * time.Millisecond, open: true}
	for i := range 80 {
		p := Point{At: time.Duration(i) * r.Interval}
		p.Offered = 1
		if i >= 16 && i < 24 {
			p.Offered = 20
		}
		p.Requests = p.Offered
		p.Admitted = min(admit(i, p.Offered), p.Offered)
		p.Rejected = p.Offered - p.Admitted
		p.Succeeded, p.Satisfied, p.Calls = p.Admitted, p.Admitted, p.Admitted
		r.Total = r.Total.plus(p.Counts)
		r.Series = append(r.Series, p)
	}
	most := Most{Window: time.Second}
	for i := range 61 {
		var sum int64
		for _, p := range r.Series[i : i+20] {
			sum += p.Admitted
		}
		if sum > most.Permits {
			most.Permits, most.At = sum, r.Series[i].At
		}
	}
	r.Most = []Most{most}
	return r
}

// limiters are four limiters of 40 a second under the same burst, roughly.
func limiters() []Named {
	tokens, window, sliding := 40.0, int64(0), []int64{}
	running := []int64{}
	return []Named{
		{"Token bucket: 40 tokens, 40/s", burst(func(_ int, offered int64) int64 {
			tokens = min(tokens+2, 40)
			n := min(int64(tokens), offered)
			tokens -= float64(n)
			return n
		})},
		{"Fixed window: 40 per second", burst(func(i int, offered int64) int64 {
			if i%20 == 0 {
				window = 0
			}
			n := min(40-window, offered)
			window += n
			return n
		})},
		{"Sliding window: 40 per second", burst(func(_ int, offered int64) int64 {
			var sum int64
			for _, n := range sliding[max(len(sliding)-19, 0):] {
				sum += n
			}
			n := min(40-sum, offered)
			sliding = append(sliding, n)
			return n
		})},
		{"Concurrency: 8 at a time", burst(func(_ int, offered int64) int64 {
			var sum int64
			for _, n := range running[max(len(running)-3, 0):] {
				sum += n
			}
			n := min(8-sum, offered)
			running = append(running, n)
			return n
		})},
	}
}
