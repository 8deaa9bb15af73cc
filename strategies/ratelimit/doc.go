// Package ratelimit has the strategy that takes permits from a limiter before an execution goes on, and holds them until
// it has ended.
//
//	bucket := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{…}))
//	p, err := pipeline.New("orders", ratelimit.New(bucket, nil))
//	…
//	err = p.Execute(ctx, call)
//	if after, ok := pipeline.RetryAfter(err); ok {
//		w.Header().Set("Retry-After", …after…)
//	}
//
// Whether an execution waits for permits is up to the limiter: it waits if the limiter has a queue with room. Outside
// a retry the strategy takes permits once for all attempts together, inside a retry for each attempt. A retry outside
// waits at least as long as the rejection asks for.
//
// If the context ends while the execution waits in the limiter's queue, the error matches that of the context, and not
// [pipeline.ErrRejected]: the limiter works, and the caller gave up. [pipeline.NotCalled] reports that nothing was called, for
// that error as for a rejection.
//
// The strategy and its pipeline do not close a limiter that was passed in: make it once, outside, and share it.
//
// # Trying limits out
//
// With [Options.Shadow] the strategy decides and reports, but rejects nothing. So the effect of a limit can be seen
// before it applies.
package ratelimit
