// Package limiter has rate limiters and a concurrency limiter: [TokenBucket], [FixedWindow], [SlidingWindow],
// [Calendar] and [Concurrency], and [NewUnlimited] for where there is no limit. A [Chained] limiter combines several, and a [PartitionedLimiter] has one for
// each key.
//
// Every limiter answers with a [Lease], which is granted or rejected. A rejected lease says after which time it is worth
// asking again, where that is known. Three calls ask for a lease:
//
//   - [Wait] returns when the permits are granted or the context ends. Most workers and batch jobs should use it.
//   - Acquire waits in the limiter's bounded queue if there is room, and otherwise rejects at once. Servers should use
//     it and pass a rejection on. The default QueueLimit is 0, and then Acquire does not wait.
//   - TryAcquire never waits.
//
// A caller of Acquire or TryAcquire looks at both results:
//
//	lease, err := l.Acquire(ctx, 1)
//	if err != nil {
//		return err // the context ended, the limiter is closed, or n is out of range
//	}
//	defer lease.Release()
//	if !lease.Acquired() {
//		return errTooBusy // lease.RetryAfter() may say when to come back
//	}
//
// An error means that the limiter could not decide. A rejection is the decision of a limiter that works. Keep the two
// apart.
//
// # Time
//
// No limiter has a goroutine or a timer while its queue is empty: each method begins by bringing the limiter up to date
// from the monotonic clock. Permits come back on the lines of a grid of whole periods, which begins when the limiter is
// made; those of a [Calendar] come back where its windows begin, by the wall clock. The grid never drifts, however late a call is. If the timer of a queue is late, waiters lose no permits that
// came back while they waited, and several can be served at once. Everything works in [testing/synctest], so there is
// no clock to inject.
//
// # Concurrency
//
// Every exported type of this package is safe for concurrent use, except where its comment says otherwise.
//
// # Custom limiters
//
// A type with the two methods of [Limiter] can be used wherever this package's limiters can. Package custom is for its
// author.
package limiter

// For maintainers, the files in reading order:
//
//	lease.go        the answer of every limiter, and the owners that take permits back
//	engine.go       what all limiters with limits share; queue.go has the waiters
//	clocked.go      what limiters share whose permits come back with time: catching up, forecasts, refunds, charges
//	bucket.go       TokenBucket and FixedWindow: a fast path, a grid, refunds; bucketstate.go has what buckets of one factory share
//	window.go       SlidingWindow: a lock around a rate.State; calendar.go has Calendar
//	concurrency.go  the limiter that lends its permits
//	chain.go        several limiters as one
//	partitioned.go  a limiter for each key; partitions.go has what does not depend on the type of resources
//	partitionsidle.go  which keys are forgotten, when room is needed and by housekeeping
//	partitionedtable.go  the table of keys; the rules of pins are in partitionedentry.go
