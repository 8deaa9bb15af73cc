package limiter

import "time"

// A FixedWindow grants up to PermitLimit in each window. Windows follow each
// other on a grid that is anchored when the limiter was made, and each begins
// with all the permits.
//
// It is right for quotas that are written that way ("1000 an hour"). Where two
// windows meet, up to twice the limit can pass at once; a [SlidingWindow] of many
// segments or a [TokenBucket] of short periods does not let that happen. The zero
// FixedWindow is not usable and says so; make one with [NewFixedWindow].
type FixedWindow struct{ bucket }

// NewFixedWindow returns a limiter at the beginning of a window. The error is a
// [weir.OptionsError].
func NewFixedWindow(o FixedWindowOptions) (*FixedWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &FixedWindow{}
	w.start(newBucketState(o.limits()))
	return w, nil
}

// Reconfigure changes the limits of the live limiter. Permits taken in the
// current window stay taken: with u of them and a new limit L there are L − u
// left in it, or none. Raising a limit serves who waits at once; who waits for
// more than the new limit comes back rejected. A new Window goes on from where
// the current one began.
//
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or
// [ErrClosed], and then nothing has changed.
func (w *FixedWindow) Reconfigure(o FixedWindowOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	return w.reconfigure(o.limits())
}

func (o FixedWindowOptions) limits() bucketLimits {
	return bucketLimits{
		limit: int64(o.PermitLimit), refill: refillAll, period: o.Window,
		queueLimit: o.QueueLimit, queueOrder: o.QueueOrder, manual: o.ManualReplenishment,
	}
}

// Options returns the options in force.
func (w *FixedWindow) Options() FixedWindowOptions {
	w.lock()
	defer w.mu.Unlock()
	return FixedWindowOptions{
		PermitLimit:         int(w.state().limit),
		Window:              time.Duration(w.state().period),
		QueueLimit:          w.state().queue.limit,
		QueueOrder:          w.state().queue.order,
		ManualReplenishment: w.state().manual,
	}
}
