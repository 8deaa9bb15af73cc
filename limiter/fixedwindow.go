package limiter

import "github.com/weir-go/weir/rate"

// A FixedWindow grants up to PermitLimit in each window. The windows follow each other on a grid that begins when the
// limiter is made, and each begins with all permits.
//
// Use it for quotas that are written that way ("1000 an hour"). Where two windows meet, up to twice the limit can pass
// at once; a [SlidingWindow] of many segments or a [TokenBucket] of short periods does not let that happen. The zero
// FixedWindow is not usable: TryAcquire and Acquire return an error. Make one with [NewFixedWindow].
type FixedWindow struct{ bucket }

// NewFixedWindow returns a limiter at the beginning of a window. The error is a [weir.OptionsError].
func NewFixedWindow(o FixedWindowOptions) (*FixedWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &FixedWindow{}
	w.start(newBucketState(o.bucket()))
	return w, nil
}

// Reconfigure changes the limits of the live limiter. Permits that were taken in the current window stay taken: if u
// permits are taken and the new limit is L, max(L − u, 0) are free in it. Raising a limit serves waiters at once;
// waiters for more than the new limit are rejected. If Window changes, the new window begins where the current one
// began, or now if it would be over.
//
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (w *FixedWindow) Reconfigure(o Options) error {
	l, err := limitsOf(rate.FixedWindow, o)
	if err != nil {
		return err
	}
	return w.reconfigure(OptionsOf(l).(FixedWindowOptions).bucket())
}

// bucket returns the options of a bucket that is such a window.
func (o FixedWindowOptions) bucket() TokenBucketOptions {
	return TokenBucketOptions{
		TokenLimit: o.PermitLimit, TokensPerPeriod: refillAll, ReplenishmentPeriod: o.Window,
		QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, ManualReplenishment: o.ManualReplenishment,
	}
}

// Options returns the options in force.
func (w *FixedWindow) Options() FixedWindowOptions { return w.options().fixedWindow() }

// Limits returns the limits in force.
func (w *FixedWindow) Limits() rate.Limits { return w.Options().Limits() }

// fixedWindow returns the options of the window that is a bucket with the options o.
func (o TokenBucketOptions) fixedWindow() FixedWindowOptions {
	return FixedWindowOptions{
		PermitLimit: o.TokenLimit, Window: o.ReplenishmentPeriod,
		QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, ManualReplenishment: o.ManualReplenishment,
	}
}
