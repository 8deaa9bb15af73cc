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
		add(&r.Total, p.Counts)
		if p.Latency.P99 > r.Latency.P99 {
			r.Latency = p.Latency
		}
		r.Series = append(r.Series, p)
	}
	r.Latency.Count = r.Total.Succeeded
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
	return r
}
