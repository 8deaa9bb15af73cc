package limiter

import "github.com/weir-go/weir/rate"

// A SlidingWindow grants up to PermitLimit in any SegmentsPerWindow consecutive segments, and so in any stretch of time
// as long as Window minus one segment. Permits that are taken in a segment come back, all at once, when that segment
// leaves the window. The more segments there are, the closer it comes to "in any Window", at 24 bytes for each segment
// in which permits were taken; see [SlidingWindowOptions].
//
// Use it for "at most n in a minute, whichever minute". A [FixedWindow] lets twice that through around a window's edge.
// The zero SlidingWindow is not usable: TryAcquire and Acquire return an error. Make one with [NewSlidingWindow].
type SlidingWindow struct{ window }

// NewSlidingWindow returns an unused limiter. The error is a [weir.OptionsError].
func NewSlidingWindow(o SlidingWindowOptions) (*SlidingWindow, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &SlidingWindow{}
	w.start(o.Limits())
	return w, nil
}

// Reconfigure changes the limits of the live limiter. Permits that were taken in the window stay taken until they leave
// it: if u permits are taken and the new limit is L, max(L − u, 0) are free. Raising a limit serves waiters at once;
// waiters for more than the new limit are rejected.
//
// If Window or SegmentsPerWindow changes, the new current segment begins where the old one began, or now if it would be
// over. Permits that were taken in a segment are then counted in the last new segment that they could belong to, so no
// permit comes back too early, and earlier leases can no longer be refunded.
//
// ManualReplenishment cannot change. The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (w *SlidingWindow) Reconfigure(o Options) error { return reconfigure(w, rate.SlidingWindow, o) }

// Options returns the options in force.
func (w *SlidingWindow) Options() SlidingWindowOptions {
	o, _ := OptionsOf(w.Limits()).(SlidingWindowOptions)
	return o
}
