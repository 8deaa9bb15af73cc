package limiter

import (
	"time"

	"github.com/weir-go/weir/rate"
)

// A Calendar grants up to PermitLimit in each day, week, month or year of a time zone, or in each billing month from a day of the
// month on: "10,000 a month". All permits come back at the first moment of the next one, in summer and winter time.
//
// For windows that need not begin where those of people do, a [FixedWindow] takes less. The limiter follows the wall clock, also if
// that is set; waiters learn of it with the next call. The zero Calendar is not usable: TryAcquire and Acquire return an error.
// Make one with [NewCalendar], and one for each key with [FactoryFor]. One that machines share, whose counts outlive a restart of the
// program, is made by the Limiter or Partitioned method of a [github.com/weir-go/weir/store.Store].
type Calendar struct{ window }

// NewCalendar returns an unused limiter. The error is a [weir.OptionsError].
func NewCalendar(o CalendarOptions) (*Calendar, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	w := &Calendar{}
	w.start(o.Limits())
	return w, nil
}

// Reconfigure changes the limits of the live limiter. Permits that were taken stay taken until the next line: if u permits are
// taken and the new limit is L, max(L − u, 0) are free. Raising a limit serves waiters at once; waiters for more than the new
// limit are rejected. If Every or Zone changes, that line is of the new calendar, and earlier leases can no longer be refunded.
//
// The error is a [weir.OptionsError] or [ErrClosed], and then nothing has changed.
func (w *Calendar) Reconfigure(o Options) error { return reconfigure(w, rate.Calendar, o) }

// wallClockSlack is by how much the wall clock can seem to be set because it is read a little later than the monotonic clock.
const wallClockSlack = int64(time.Millisecond)

// epoch returns the moment at which 1970 began by the wall clock.
func epoch(now int64) int64 { return now - time.Now().UnixNano() }

// followWallClock moves the lines of a calendar with the wall clock, which can be set, or go on while the machine sleeps and the
// monotonic clock stands still. It reports whether the lines have moved.
func (w *window) followWallClock(now int64) (moved bool) {
	anchor := epoch(now)
	by := anchor - w.schedule.Anchor
	if moved = by > wallClockSlack || by < -wallClockSlack; moved {
		w.schedule.Anchor = anchor
		w.findLine()
	}
	return moved
}
