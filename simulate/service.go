package simulate

import "time"

// A Service is what a pipeline protects.
type Service struct {
	// Latency is how long a call takes, once it is served. If nil, calls take no time.
	Latency Durations
	// Capacity is how many calls are served at a time; the others wait for their turn. 0 means that there is no limit.
	Capacity int
	// QueueLimit is how many calls can wait; further calls fail at once. 0 means that there is no limit, -1 that no call can
	// wait.
	QueueLimit int
	// FailureRate is the share of calls that fail, from 0 to 1.
	FailureRate float64
	// StopsCanceled makes the service drop a call when its caller has given up. If false, the call keeps its place, as in
	// most services: work for those who have left is what keeps an overload going.
	StopsCanceled bool
	// Periods are times in which the service is different, such as an outage.
	Periods []Period
}

// A Period is a time in which a [Service] is different. Where several overlap, the last one in the list counts. A call has
// the latency and the failure rate of the instant at which the service begins to serve it.
type Period struct {
	// From is when the period begins, and To when it ends, after the beginning of the simulation. To is required, and later
	// than From.
	From, To time.Duration
	// FailureRate is the share of calls that fail, from 0 to 1, in place of that of the service: 0 means that no call fails,
	// and 1 is an outage.
	FailureRate float64
	// Latency is how long a call takes. If nil, that of the service applies.
	Latency Durations
	// Capacity is how many calls are served at a time. 0 means as many as the service says.
	Capacity int
}
