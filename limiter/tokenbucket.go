package limiter

import "github.com/weir-go/weir/rate"

// A TokenBucket lets through bursts of up to TokenLimit, and TokensPerPeriod in each period in the long run. The tokens
// of a period come all at once, at its end; the first period begins when the limiter is made. 10 tokens in 100 ms and 1
// token in 10 ms are the same rate, but with the second, tokens come more evenly.
//
// Most callers should use it: it is small and exact. Around a grid line, up to TokenLimit + TokensPerPeriod pass at
// once; with short periods that is little more than TokenLimit, while a [FixedWindow] lets twice its limit through. The
// zero TokenBucket is not usable: TryAcquire and Acquire return an error. Make one with [NewTokenBucket].
type TokenBucket struct{ bucket }

// NewTokenBucket returns a full bucket. The error is a [weir.OptionsError].
func NewTokenBucket(o TokenBucketOptions) (*TokenBucket, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &TokenBucket{}
	b.start(newBucketState(o))
	return b, nil
}

// Reconfigure changes the limits of the live bucket. Tokens that are missing from full stay missing: if u tokens are
// missing and the new limit is L, the bucket has L − u tokens; if that is negative, it owes u − L. Raising a limit
// serves waiters at once; waiters for more than the new limit are rejected. If ReplenishmentPeriod changes, the new
// periods begin at the current grid line, or now if the first one would be over.
//
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (b *TokenBucket) Reconfigure(o Options) error {
	l, err := limitsOf(rate.TokenBucket, o)
	if err != nil {
		return err
	}
	return b.reconfigure(OptionsOf(l).(TokenBucketOptions))
}

// Options returns the options in force.
func (b *TokenBucket) Options() TokenBucketOptions { return b.options() }

// Limits returns the limits in force.
func (b *TokenBucket) Limits() rate.Limits { return b.Options().Limits() }
