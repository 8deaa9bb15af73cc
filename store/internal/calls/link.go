package calls

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/background"
)

// A link is the way to the backend, the same for all shards.
type link struct {
	backend backend.Backend
	o       Options
	most    limits

	// Made counts the round trips for decisions, leases and definitions, and Failed those of them that failed.
	Made, Failed atomic.Int64
	asked        atomic.Int64 // in a simulation: how many calls with a caller there were
}

// Options are what a Client is made with. All are required.
type Options struct {
	Background       *background.Group
	Timeout          time.Duration // bounds a round trip, and the time that a caller waits for its answer
	FailureThreshold int           // how many round trips in a row must fail before a shard counts as away
	ProbeInterval    time.Duration // between two probes of a shard that is away
	// Lost and Recovered are called when a shard begins and ceases to count as away.
	Lost      func(shard string, err error)
	Recovered func(shard string, away time.Duration)
}

// within calls the backend and returns after the timeout at the latest, even if the backend does not, panics, or ends its
// goroutine.
func within[T any](l *link, f func(ctx context.Context) (T, error)) (T, error) {
	type result struct {
		v   T
		err error
	}
	ctx, cancel := context.WithTimeout(l.o.Background.Context(), l.o.Timeout)
	defer cancel()
	done := make(chan result, 1)
	go func() {
		r := result{err: errNoReturn}
		defer func() { done <- r }()
		recovered.Call("store: Backend", func() { r.v, r.err = f(ctx) })
	}()
	select {
	case r := <-done:
		return r.v, r.err
	case <-ctx.Done():
		return result{}.v, errTimeout
	}
}

// probe takes a permit, for which the store has to read and to write.
func (l *link) probe(d *backend.Definition, key string) error {
	b, err := within(l, func(ctx context.Context) (*backend.Batch, error) {
		b := &backend.Batch{Definition: d, Key: key, Requests: []backend.Request{{Min: 1, Max: 1}}, Granted: make([]int64, 1)}
		return b, l.backend.Decide(ctx, []*backend.Batch{b})
	})
	if err == nil && b.Outcome == backend.Unreachable {
		err = b.Err
	}
	return err
}

// probeDefinition is what probes take permits of: a bucket that is refilled each second and never used up. It is not stored in
// any backend.
var probeDefinition = &backend.Definition{
	Name: "weir/probe", Version: 1,
	Schedule: rate.Schedule{Kind: rate.TokenBucket, Permits: backend.MaxPermits, Refill: backend.MaxPermits, Period: 1e6},
}

const (
	// maxBatchers is how many batchers of one Op a shard has at most. All calls about one key use the same one.
	maxBatchers = 4
	// maxTrips is how many round trips of a batcher can be under way at once, if there are enough connections.
	maxTrips = 8
)

// limits are how many batchers of one Op a shard has, and how many round trips of each can be under way at once. Together that
// is half of the backend's connections at most. A batcher has two round trips, rather than a shard twice as many batchers: with
// one, a call waits for the round trip under way and then for its own.
type limits struct {
	batchers, trips int
	// random is not nil in a simulation: then the calls that arrive at one instant go together, in an order that is always the
	// same, because goroutines add them in any.
	random deterministic.Maker
}

// places is how many there are for settle: that of the queues, and one for each batcher of a shard.
const places = 1 + int64(ops)*maxBatchers

// settle returns at once, except in a simulation: there it returns when everything that happens at this instant has happened, at
// the next nanosecond of that place, or when the Store is closed. So what goroutines with two places do after it does not happen at
// one instant, and the answers to what they ask for do not come at one.
func (l *link) settle(place int) {
	if l.most.random != nil {
		l.o.Background.Sleep(time.Duration(places - (time.Now().UnixNano()-int64(place))%places))
	}
}

func limitsOf(b backend.Backend) (l limits) {
	half := maxBatchers * maxTrips
	if p, ok := b.(backend.Pooled); ok {
		half = max(p.Connections()/2, 1)
	}
	l.batchers = min(max(half/2, 1), maxBatchers)
	l.trips = min(half/l.batchers, maxTrips)
	l.random, _ = b.(deterministic.Maker)
	return l
}
