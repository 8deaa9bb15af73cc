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
	// For is how long requests arrive. Required, except for a Recording: there 0 means its whole length.
	For time.Duration
	// Open are arrivals by a rate.
	Open *Open
	// Closed are clients that wait for their answers.
	Closed *Closed
	// Recording are requests that were recorded. See [ReadCSV] and [ReadAccessLog].
	Recording *Recording
	// Keys are the keys of the requests of Open and Closed, such as their users. If nil, all have the same key.
	Keys Keys
	// Cost is how many permits a request of Open or Closed takes, if the pipeline's limiter asks [Cost]. If nil, it is 1.
	Cost Costs
}

// Open are requests that arrive by a rate.
type Open struct {
	// Rate is how many arrive, over time. Required.
	Rate Rate
	// Poisson makes the arrivals random: independent of each other, as those of many users are. If false, they are evenly
	// spaced.
	Poisson bool
}

// Closed is a number of clients, each of which sends a request, waits for its answer, thinks, and sends the next.
type Closed struct {
	// Clients is how many there are, at least 1.
	Clients int
	// Think is how long a client waits after an answer. Required: clients that never think are a load that never ends.
	// A value below 1 µs counts as 1 µs.
	Think Durations
	// SameKey makes all requests of a client have the key that the client drew first.
	SameKey bool
}

// A Rate is how many requests arrive over time. It must be safe for concurrent use.
type Rate interface {
	// Arrivals returns how many requests are to arrive from the beginning until then: it is 0 at 0 and never falls.
	Arrivals(until time.Duration) float64
	// Validate returns a [weir.OptionsError] with everything that is wrong, or nil.
	Validate() error
}

// Durations are random lengths of time. They must be safe for concurrent use.
type Durations interface {
	// Duration returns the next one, by random numbers of r.
	Duration(r *rand.Rand) time.Duration
	// Validate returns a [weir.OptionsError] with everything that is wrong, or nil.
	Validate() error
}

// Keys are the keys of requests. They must be safe for concurrent use.
type Keys interface {
	// Key returns the next one, by random numbers of r.
	Key(r *rand.Rand) string
	// Validate returns a [weir.OptionsError] with everything that is wrong, or nil.
	Validate() error
}

// Costs are the numbers of permits that requests take. They must be safe for concurrent use.
type Costs interface {
	// Cost returns the next one, at least 0, by random numbers of r.
	Cost(r *rand.Rand) int
	// Validate returns a [weir.OptionsError] with everything that is wrong, or nil.
	Validate() error
}
