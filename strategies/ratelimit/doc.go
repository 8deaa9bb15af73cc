// Package ratelimit has the strategy that asks a limiter before an execution
// goes on, and holds the permits until it has ended.
//
//	bucket := weir.Must(limiter.NewTokenBucket(limiter.TokenBucketOptions{…}))
//	p, err := pipeline.New("orders", ratelimit.New(bucket, nil))
//	…
//	err = p.Execute(ctx, call)
//	if rejected, ok := errors.AsType[*ratelimit.RejectedError](err); ok {
//		w.Header().Set("Retry-After", …rejected.RetryAfter…)
//	}
//
// Whether an execution waits for permits is the limiter's matter: it waits where
// the limiter has a queue with room. Outside of a retry the strategy takes
// permits once for the whole, inside of one for every attempt; a retry outside
// waits at least as long as the rejection asks for.
//
// A limiter that was passed in is not closed by the strategy or its pipeline:
// make it once, outside, and share it.
//
// # Trying limits out
//
// With [Options.Shadow] the strategy decides and reports, but rejects nothing:
// the way to find out what a limit would do before it does it.
package ratelimit
