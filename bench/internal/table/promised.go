package main

// A promise is a bound on a measurement of a contender, alone or in relation to a peer.
type promise struct {
	what string
	of   string // a pattern for the names of benchmarks, as path.Match has them
	unit string
	peer string // the part in which the peer's name differs, such as "by=throttled"; "": no peer
	bound
}

// A bound is what is promised. The zero bound promises nothing: the measurement is only shown.
type bound struct {
	relation
	value float64
}

type relation int

const (
	shown      relation = iota
	atLeast             // at least value times the peer's
	atMost              // at most value times the peer's or, without a peer, at most value
	atMostMore          // at most value more than the peer's
)

func (b bound) kept(v float64) bool {
	switch b.relation {
	case shown:
		return true
	case atLeast:
		return v >= b.value
	default:
		return v <= b.value
	}
}

const (
	micro = 1e3 // ns
	milli = 1e6
)

// promises are all promises, in the process and with a server. Those with a zero bound only show a comparison, with a
// floor, which does less than a limiter has to, or on a path of which nothing is promised.
var promises = []promise{
	{"flood of new keys", "Flood/max=*/idle=*/by=weir-*", "ns/key", "", bound{atMost, 2 * micro}},
	{"flood of new keys, 10th longest of 50,000", "Flood/max=*/idle=*/by=weir-*", "tenth-longest-ns", "", bound{atMost, milli}},
	{"a known key beside it, 10th longest of 50,000", "Flood/max=*/idle=*/by=weir-*", "known-tenth-longest-ns", "", bound{atMost, milli}},

	{"MaxPartitions set", "KeyedBounded/by=weir-*-bounded/goroutines=2", "ns/op", "goroutines=1", bound{atMost, 0.65}},
	{"and not set", "KeyedBounded/by=weir-*-unbounded/goroutines=2", "ns/op", "goroutines=1", bound{}},

	{"a new key", "KeyNew/keys=*/processors=*/by=weir-*", "ns/key", "by=go-limiter", bound{atMost, 1.3}},

	{"refilled on every call", "KeyedRefilled/keys=10000/draw=*/by=weir-*/goroutines=*", "ns/op", "by=go-limiter", bound{atMost, 0.9}},
	{"refilled on every call", "KeyedRefilled/keys=1000000/draw=*/by=weir-*/goroutines=*", "ns/op", "by=go-limiter", bound{atMost, 0.95}},
	{"refilled on every call", "KeyedRefilled/keys=*/draw=*/by=weir-*/goroutines=*", "ns/op", "by=floor-xsync-gcra", bound{}},

	{"a key without its string", "KeyBytes/keys=*/life=[fr]*/by=weir-*", "bytes/key", "", bound{atMost, 112}},
	{"a key without its string, that has waited", "KeyBytes/keys=*/life=queued/by=weir-*", "bytes/key", "", bound{}},
	{"a key without its string, after another call", "KeyBytes/keys=*/life=*/by=weir-*", "bytes/key-touched", "", bound{}},

	{"refilled on every call", "LimiterRefilled/by=weir-token-bucket/goroutines=[12]", "ns/op", "by=floor-gcra", bound{atMost, 1.3}},
	{"refilled on every call", "LimiterRefilled/by=weir-token-bucket/goroutines=8", "ns/op", "by=floor-gcra", bound{}},
	{"refilled on every call", "LimiterRefilled/by=weir-fixed-window/goroutines=*", "ns/op", "by=floor-gcra", bound{}},

	{"rejected with RetryAfter", "LimiterRejectedKnowing/by=weir-token-bucket/goroutines=*", "ns/op", "by=failsafe-smooth", bound{atMost, 1}},
	{"rejected with RetryAfter", "LimiterRejectedKnowing/by=weir-token-bucket/goroutines=*", "ns/op", "by=failsafe-bursty", bound{atMost, 1}},
	{"rejected with RetryAfter", "LimiterRejectedKnowing/by=weir-fixed-window/goroutines=*", "ns/op", "by=failsafe-smooth", bound{}},

	{"concurrency limit, rejected", "ConcurrencyRejected/by=weir-concurrency/goroutines=1", "ns/op", "", bound{atMost, 15}},
	{"concurrency limit, rejected", "ConcurrencyRejected/by=weir-concurrency/goroutines=*", "ns/op", "by=x-sync-semaphore", bound{}},
	{"concurrency limit, rejected", "ConcurrencyRejected/by=weir-concurrency/goroutines=*", "ns/op", "by=failsafe-bulkhead", bound{}},

	{"sliding window, rejected", "SlidingRejected/segments=*/use=*/by=weir-*", "ns/op", "", bound{atMost, 200}},

	{"a pipeline that succeeds", "Pipeline/strategies=retry/by=weir/goroutines=*", "ns/op", "by=failsafe", bound{atMost, 1. / 35}},
	{"a pipeline that succeeds", "Pipeline/strategies=retry+timeout+ratelimit/by=weir/goroutines=*", "ns/op", "by=failsafe", bound{atMost, 1. / 11}},
	{"its allocations", "Pipeline/strategies=retry*/by=weir/goroutines=1", "allocs/op", "by=failsafe", bound{}},

	{"telemetry, over the same by hand", "Telemetry/signals=metrics/by=weir", "ns/op", "by=bare", bound{atMostMore, 150}},
	{"telemetry, over the same by hand", "Telemetry/signals=spans/by=weir", "ns/op", "by=bare", bound{atMostMore, 150}},
	{"telemetry, beside the same by hand", "Telemetry/signals=events/by=weir", "ns/op", "by=bare", bound{}},
	{"telemetry, beside constants recorded by hand", "Telemetry/signals=*/by=weir", "ns/op", "by=bare-untimed", bound{}},
	{"telemetry without an SDK, over none", "Telemetry/signals=metrics/by=noop", "ns/op", "by=none", bound{atMostMore, 10}},

	{"the longest call during a reload", "RegistryReload/keys=*/call=*/by=weir", "longest-ns", "", bound{atMost, milli}},
	{"a reload, until every key has its new limits", "RegistryReload/keys=*/call=*/by=weir", "reload-ns", "", bound{}},

	{"more processors than there are", "Collapse/path=one-refilled/*/by=weir-token-bucket/*", "ns/op", "by=floor-gcra", bound{}},
	{"more processors than there are", "Collapse/path=one-rejected/*/by=weir-token-bucket/*", "ns/op", "by=failsafe-smooth", bound{}},
	{"more processors than there are", "Collapse/path=one-rejected/*/by=weir-token-bucket/*", "ns/op", "by=failsafe-bursty", bound{}},
	{"more processors than there are", "Collapse/path=keys-*/*/by=weir-*/*", "ns/op", "by=go-limiter", bound{}},
	{"more processors than there are", "Collapse/path=keys-*/*/by=weir-*/*", "ns/op", "by=floor-xsync-gcra", bound{}},

	{"one call at a time, an empty script", "Redis/keys=1/by=weir/goroutines=1", "ns/op", "by=floor-script", bound{}},
	{"as fast as an empty script", "Redis/keys=*/by=weir/goroutines=32", "ops/s", "by=floor-script", bound{atLeast, 0.9}},
	{"and faster than the peers", "Redis/keys=*/by=weir/goroutines=32", "ops/s", "by=redis_rate", bound{atLeast, 1}},
	{"and faster than the peers", "Redis/keys=*/by=weir/goroutines=32", "ops/s", "by=throttled", bound{atLeast, 1}},
	{"and faster than the peers", "Redis/keys=*/by=weir/goroutines=32", "ops/s", "by=ulule", bound{atLeast, 1}},
	{"coalescing", "Redis/keys=1/by=weir/goroutines=32", "ops/s", "by=floor-script", bound{atLeast, 1.5}},
	{"blocks of 100", "Redis/keys=1/by=weir-block-100/goroutines=32", "ops/s", "by=weir", bound{atLeast, 4}},
	{"an exhausted key that is remembered", "Redis/keys=1/by=weir-rejected-cached/goroutines=1", "ns/op", "", bound{atMost, 200}},

	{"one call at a time, an upsert", "Postgres/keys=1/by=weir/goroutines=1", "ns/op", "by=floor-upsert", bound{}},
	{"as fast as an upsert", "Postgres/keys=*/by=weir/goroutines=32", "ops/s", "by=floor-upsert", bound{atLeast, 0.8}},
	{"the same, asynchronous commit", "Postgres/keys=*/by=weir-async/goroutines=32", "ops/s", "by=floor-upsert-async", bound{atLeast, 0.8}},
	{"a rejection is faster than a write", "Postgres/keys=1/by=weir-rejected/goroutines=32", "ops/s", "by=weir", bound{atLeast, 2}},
	{"coalescing", "Postgres/keys=1/by=weir/goroutines=32", "ops/s", "by=floor-upsert", bound{atLeast, 12}},
	{"blocks of 100", "Postgres/keys=1/by=weir-block-100/goroutines=32", "ops/s", "by=weir", bound{atLeast, 4}},
	{"an exhausted key that is remembered", "Postgres/keys=1/by=weir-rejected-cached/goroutines=1", "ns/op", "", bound{atMost, 200}},
}
