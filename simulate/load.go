package simulate

import (
	"math/rand/v2"
	"time"
)

// A Load is the requests of a [Scenario]: exactly one of Open, Closed and Recording.
//
// In an open load, requests arrive however long the answers take, as they do from many independent users. In a closed
// load, a number of clients each wait for an answer before they send again, as workers of a pool do: they slow down with
// the service. Which of the two it is decides what an overload looks like, so there is no default.
type Load struct {
	// For is how long requests arrive. Required, except for a Recording: there 0 means its whole length. A longer For than
	// the Recording adds no requests.
	For time.Duration
	// Open makes requests arrive by a rate.
	Open *Open
	// Closed makes clients send requests and wait for their answers.
	Closed *Closed
	// Recording has requests that were recorded. See [ReadCSV] and [ReadAccessLog].
	Recording *Recording
	// Keys are the keys of the requests, such as their users: [UniformKeys], [ZipfKeys] or [AbuserKeys]. If nil, all
	// requests have the empty key. For a Recording, Keys is ignored.
	Keys Keys
	// Cost is how many permits a request takes, if the pipeline's limiter asks [Cost]: a [FixedCost], [UniformCost] or
	// [MixedCost]. If nil, each takes 1. For a Recording, Cost is ignored.
	Cost Costs
}

// Open are requests that arrive by a rate.
type Open struct {
	// Rate is how many requests a second arrive, over time: a [ConstantRate], [Ramp], [Steps], [Sine], [Bursts] or the
	// [Sum] of several. Required.
	Rate Rate
	// Poisson makes the arrivals random: independent of each other, as those of many users are. If false, the requests are
	// evenly spaced.
	Poisson bool
}

// Closed is a number of clients, each of which sends a request, waits for its answer, thinks, and sends the next.
type Closed struct {
	// Clients is how many clients there are, at least 1. Required.
	Clients int
	// Think is how long a client waits after an answer, and before its first request. Required. A time below 1 µs counts as
	// 1 µs. With a short one and a fast pipeline, the load is as many requests as the simulation can run.
	Think Durations
	// SameKey makes all requests of a client have the key that the client drew first.
	SameKey bool
}

// A Rate is how many requests arrive over time. It must be safe for concurrent use.
type Rate interface {
	// Arrivals returns how many requests arrive from the beginning until that time. It is 0 at 0 and never falls.
	Arrivals(until time.Duration) float64
}

// Durations are random lengths of time: [Fixed], [Uniform], [Exponential], [LogNormal] or those of the program. They must be
// safe for concurrent use.
type Durations interface {
	// Duration returns the next length of time, by random numbers of r.
	Duration(r *rand.Rand) time.Duration
}

// Keys are the keys of requests. They must be safe for concurrent use.
type Keys interface {
	// Key returns the key of the next request, by random numbers of r.
	Key(r *rand.Rand) string
}

// Costs are the numbers of permits that requests take. They must be safe for concurrent use.
type Costs interface {
	// Cost returns the cost of the next request, at least 0, by random numbers of r.
	Cost(r *rand.Rand) int
}
