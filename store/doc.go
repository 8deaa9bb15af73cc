// Package store has rate and concurrency limiters whose state many instances of a service share: token bucket, fixed
// window, sliding window and concurrency, each as one limiter or as one for each key. They implement [limiter.Limiter]
// and [limiter.Partitioned] and take the options of package limiter, so that a program moves from one process to many by
// changing a constructor.
//
// The state is in a [backend.Backend]. Packages weirredis and weirpostgres have one each, and a New that returns a
// [Store] on it. Package storetest has one in memory, for tests.
//
// # Map of the code
//
// For maintainers, in reading order:
//
//   - core.go: one limiter; tryAcquire and takeOrFallBack are the way of every request.
//   - call.go: a request about a bucket or window, its answer, and what happens if its caller leaves.
//   - batcher.go: how requests that arrive together share a round trip; callgroup.go makes one of calls.
//   - breaker.go: when a store counts as away; outage.go answers meanwhile.
//   - queueserve.go: who gets permits that come back; fairness.go decides among instances.
//
// Of the rest, keystate*.go and block*.go are what is remembered of a key, lease*.go are concurrency limiters, and
// definition*.go is how instances agree on limits.
package store
