// Package store has rate and concurrency limiters whose state many instances of a service share: token bucket, fixed
// window, sliding window, calendar and concurrency, each as one limiter or as one for each key. They implement [limiter.Limiter]
// and [limiter.Partitioned] and take the options of package limiter, so that a program moves from one process to many by
// changing a constructor.
//
// The state is in a [backend.Backend]. Packages weirredis and weirpostgres have one each; their function New returns a
// [Store] that uses it. Package storetest has a backend in memory, for tests.
//
// # Map of the code
//
// For maintainers, in reading order. Files of one subject begin with the same word.
//
//   - store.go: the Store and its constructors. limiter.go: what they return, and how a limiter begins and ends. override.go,
//     charge.go and peek.go have more of its methods. internal/background has the goroutines of a Store.
//   - core.go: one limiter. Follow TryAcquire and Acquire from queue.go to takeOrFallBack in outage.go.
//   - remote.go: its calls about a bucket or window, and the grants that it makes of the answers. internal/calls has the round trips,
//     and when the store, or a shard of it, counts as away. outage.go and fallback.go: the answers while it is away.
//   - lease.go: the same for concurrency limiters, whose permits are leased and renewed.
//   - keys.go: what this instance remembers of a key. block.go: the permits that it has borrowed (internal/lending). queue.go: the
//     callers that wait; internal/fairness says when they are asked for.
//   - internal/definition: how instances agree on the limits, and on an override of them; definition.go is its edge. listen.go:
//     what limiters learn from the store: notices of changes and releases, and outages.
package store
