package limiter

import "time"

// A TokenBucket lets through bursts of up to TokenLimit, and TokensPerPeriod in
// each period in the long run. Tokens come all at once on a grid of whole periods
// that is anchored when the limiter was made: 10 tokens in 100 ms and 1 token in
// 10 ms are the same rate, the second more even.
//
// It is the limiter to take when in doubt: small and exact. Around a grid line up
// to TokenLimit + TokensPerPeriod pass at once; with short periods that is little
// more than TokenLimit, where a [FixedWindow] lets twice its limit through. The zero
// TokenBucket is not usable and says so; make one with [NewTokenBucket].
type TokenBucket struct{ bucket }

// NewTokenBucket returns a full bucket. The error is a [weir.OptionsError].
func NewTokenBucket(o TokenBucketOptions) (*TokenBucket, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	b := &TokenBucket{}
	b.start(newBucketState(o.limits()))
	return b, nil
}

// Reconfigure changes the limits of the live bucket. Tokens that are missing from
// full stay missing: with u of them taken and a new limit L there are L − u, and
// if that is less than nothing the bucket owes them. Raising a limit serves who
// waits at once; who waits for more than the new limit comes back rejected.
// A new period goes on from the current grid line.
//
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or
// [ErrClosed], and then nothing has changed.
func (b *TokenBucket) Reconfigure(o TokenBucketOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return b.reconfigure(o.limits())
}

func (o TokenBucketOptions) limits() bucketLimits {
	return bucketLimits{
		limit: int64(o.TokenLimit), refill: int64(o.TokensPerPeriod), period: o.ReplenishmentPeriod,
		queueLimit: o.QueueLimit, queueOrder: o.QueueOrder, manual: o.ManualReplenishment,
	}
}

// Options returns the options in force.
func (b *TokenBucket) Options() TokenBucketOptions {
	b.lock()
	defer b.mu.Unlock()
	return TokenBucketOptions{
		TokenLimit:          int(b.state().limit),
		TokensPerPeriod:     int(b.state().refill),
		ReplenishmentPeriod: time.Duration(b.state().period),
		QueueLimit:          b.state().queue.limit,
		QueueOrder:          b.state().queue.order,
		ManualReplenishment: b.state().manual,
	}
}
