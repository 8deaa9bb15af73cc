package simulate

import "time"

// A Service is what a pipeline protects.
type Service struct {
	// Latency is how long a call takes, once it is served. If nil, calls take no time.
	Latency Durations
	// Capacity is how many calls are served at a time; the others wait for their turn. 0 means that there is no limit.
	Capacity int
	// QueueLimit is how many calls can wait; further ones fail at once. 0 means that there is no limit, -1 that none can.
	QueueLimit int
	// FailureRate is the share of calls that fail, from 0 to 1.
	FailureRate float64
	// StopsCanceled makes the service drop a call when its caller has given up. If false, the call keeps its place, as in
	// most services: work for those who have left is what keeps an overload going.
	StopsCanceled bool
	// Periods are times in which the service is different, such as an outage.
	Periods []Period
}

// A Period is a time in which a [Service] is different. Where several overlap, the last one in the list counts.
type Period struct {
	// From and To are its beginning and end, after the beginning of the simulation.
	From, To time.Duration
	// FailureRate is the share of calls that fail, from 0 to 1; an outage has 1.
	FailureRate float64
	// Latency replaces that of the service, for calls that are begun in the period; nil does not.
	Latency Durations
	// Capacity replaces that of the service; 0 does not.
	Capacity int
}
