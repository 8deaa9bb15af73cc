// Package store has rate and concurrency limiters whose state many instances of a service share: token bucket, fixed
// window, sliding window and concurrency, each as one limiter or as one for each key. They implement [limiter.Limiter]
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
//   - store.go: the Store and its constructors; limiter.go has what they return.
//   - core.go: one limiter. Follow TryAcquire from tryAcquire to takeOrFallBack; Acquire begins in queue.go.
//   - call.go, lease.go: what a limiter asks of the store, and what it does with the answer. Package internal/calls makes the
//     round trips, and knows when the store, or a shard of it, counts as away. block.go: grants from borrowed permits, whose
//     arithmetic is in internal/lending.
//   - charge.go, peek.go, statistics.go: the other questions. outage.go: the answers while the store is away.
//   - key*.go: what this instance remembers of a key. queue*.go: the callers that wait for its permits; internal/fairness says
//     when the queue asks for them.
//   - internal/definition: how instances agree on the limits, and on an override of them. definition.go and override.go are
//     its edge. listen.go: notices of changes and releases.
package store
