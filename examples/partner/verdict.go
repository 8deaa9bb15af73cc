package main

import (
	"cmp"
	"errors"
	"net/http"
	"slices"
	"time"
)

// allowed returns how many requests of a user the limit allows in a time: one at once, and one for each interval that has
// passed.
func allowed(d time.Duration) int { return 1 + int(max(d, 0)/interval) }

// A verdict is what a run comes to. Its JSON is printed with -json.
type verdict struct {
	Variant   string             `json:"variant,omitempty"` // not known of instances that ran already
	Seconds   float64            `json:"seconds"`           // from the first request to the last answer
	Granted   int                `json:"granted"`           // successful GETs of all users
	Allowed   int                `json:"allowed"`
	TooMany   bool               `json:"too_many"`
	Users     []userVerdict      `json:"users"`
	Instances []instanceVerdict  `json:"instances"`
	Limiter   map[string]latency `json:"limiter"`  // by the decision: granted, rejected, failed
	Requests  map[string]latency `json:"requests"` // by method and outcome: GET granted, POST created
	Failures  map[string]int     `json:"failures"`
	Late      latency            `json:"late"`                // how much later than due requests were sent
	WALBytes  *int64             `json:"wal_bytes,omitempty"` // what PostgreSQL has written to its log meanwhile
}

// A userVerdict compares a user's successes with the limit.
type userVerdict struct {
	User    string `json:"user"`
	Granted int    `json:"granted"`
	Allowed int    `json:"allowed"`
	// Seconds is the time from before the first GET to after the last success, by PostgreSQL's clock: the decisions are
	// in it, and Allowed follows from it.
	Seconds float64 `json:"seconds"`
	// Excess is by how many the successes were above the limit at the moment when they were most, by the same clock.
	Excess int `json:"excess"`
	// Closest is the least time from sending a successful request to the answer of the next success, in seconds. The
	// two decisions were not further apart. 0: there were no two.
	Closest float64 `json:"closest_seconds"`
	// TooClose counts the successes that came too soon after another by that measure.
	TooClose int `json:"too_close"`
	// ClosestRuns is the least time between the runs of the handler, in seconds by PostgreSQL's clock. It can be
	// shorter than the interval for a limiter that keeps its limit, because a handler runs some time after the decision.
	ClosestRuns float64 `json:"closest_runs_seconds"`
}

type instanceVerdict struct {
	Name string `json:"name"`
	URL  string `json:"url"`
	GET  counts `json:"get"`
	POST counts `json:"post"`
	// Skipped counts the requests that were due while too many others had no answer.
	Skipped int `json:"skipped"`
}

type counts struct {
	Answered  int `json:"answered"`
	Succeeded int `json:"succeeded"`
	Rejected  int `json:"rejected"`
	Failed    int `json:"failed"`
}

func (c *counts) add(s *sample) {
	c.Answered++
	switch {
	case s.failure != "":
		c.Failed++
	case s.rejected():
		c.Rejected++
	default:
		c.Succeeded++
	}
}

// A latency is of Count calls, in milliseconds.
type latency struct {
	Count int     `json:"count"`
	Mean  float64 `json:"mean_ms"`
	P50   float64 `json:"p50_ms"`
	P99   float64 `json:"p99_ms"`
	Max   float64 `json:"max_ms"`
}

func newLatency(times []time.Duration) latency {
	if len(times) == 0 {
		return latency{}
	}
	var sum time.Duration
	for _, d := range times {
		sum += d
	}
	return latency{
		Count: len(times), Mean: ms(sum / time.Duration(len(times))),
		P50: ms(quantileOf(times, 0.5)), P99: ms(quantileOf(times, 0.99)), Max: ms(slices.Max(times)),
	}
}

func ms(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// newVerdict judges the samples of a table. clock is PostgreSQL's clock before the first GET.
func newVerdict(v variant, t *table, clock time.Time) *verdict {
	t.mu.Lock()
	defer t.mu.Unlock()
	r := &verdict{Variant: v.name, Failures: map[string]int{}, Limiter: map[string]latency{}, Requests: map[string]latency{}}
	for i, target := range t.loads.targets {
		r.Instances = append(r.Instances, instanceVerdict{Name: target.name, URL: target.url, Skipped: t.skips[i]})
	}
	limiter, requests := map[string][]time.Duration{}, map[string][]time.Duration{}
	var late []time.Duration
	for i := range t.samples {
		s := &t.samples[i]
		decision, request := s.names()
		if s.asked {
			limiter[decision] = append(limiter[decision], s.limiter)
		}
		requests[request] = append(requests[request], s.answered-s.sent)
		late = append(late, max(0, s.sent-s.due))
		if s.failure != "" {
			r.Failures[s.failure]++
		}
		if s.post {
			r.Instances[s.target].POST.add(s)
		} else {
			r.Instances[s.target].GET.add(s)
		}
		r.Seconds = max(r.Seconds, s.answered.Seconds())
	}
	for name, times := range limiter {
		r.Limiter[name] = newLatency(times)
	}
	for name, times := range requests {
		r.Requests[name] = newLatency(times)
	}
	r.Late = newLatency(late)
	granted := successes(t.samples)
	for _, user := range t.loads.users {
		u := judge(user, granted[user], clock)
		r.Granted += u.Granted
		r.Allowed += u.Allowed
		r.TooMany = r.TooMany || u.Excess > 0 || u.TooClose > 0
		r.Users = append(r.Users, u)
	}
	return r
}

// names returns under which names the limiter's time and the request's time are counted.
func (s *sample) names() (decision, request string) {
	method := http.MethodGet
	if s.post {
		method = http.MethodPost
	}
	switch {
	case s.failure != "":
		return "failed", method + " failed"
	case s.rejected():
		return "rejected", method + " rejected"
	case s.post:
		return "", method + " created"
	default:
		return "granted", method + " granted"
	}
}

// successes returns the successful GETs by user.
func successes(samples []sample) map[string][]*sample {
	granted := map[string][]*sample{}
	for i := range samples {
		if s := &samples[i]; !s.post && s.succeeded() {
			granted[s.user] = append(granted[s.user], s)
		}
	}
	return granted
}

// judge compares the successes of a user with the limit.
func judge(user string, granted []*sample, clock time.Time) userVerdict {
	u := userVerdict{User: user, Allowed: 1}
	slices.SortFunc(granted, func(a, b *sample) int { return a.now.Compare(b.now) })
	for i, s := range granted {
		u.Granted, u.Allowed, u.Seconds = i+1, allowed(s.now.Sub(clock)+tick), s.now.Sub(clock).Seconds()
		u.Excess = max(u.Excess, u.Granted-u.Allowed)
		if i > 0 {
			u.ClosestRuns = least(u.ClosestRuns, s.now.Sub(granted[i-1].now))
		}
	}
	slices.SortFunc(granted, func(a, b *sample) int { return cmp.Compare(a.answered, b.answered) })
	for i := 1; i < len(granted); i++ {
		apart := granted[i].answered - granted[i-1].sent
		u.Closest = least(u.Closest, apart)
		if apart < closest {
			u.TooClose++
		}
	}
	return u
}

// least returns the shorter time in seconds; 0 stands for none yet.
func least(seconds float64, d time.Duration) float64 {
	if seconds == 0 {
		return d.Seconds()
	}
	return min(seconds, d.Seconds())
}

// closest is the shortest allowed time between two successes by the clock of this program, which may run a thousandth faster
// or slower than PostgreSQL's while that is being set.
const closest = interval - tick - interval/1000

// errTooMany is the error of a run in which a limiter has granted more than its limit.
var errTooMany = errors.New("the limiter has granted more than the limit allows")

func (r *verdict) err() error {
	if r.TooMany {
		return errTooMany
	}
	return nil
}
