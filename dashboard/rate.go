package dashboard

import "time"

// orZero returns a figure, or 0 if it is not known.
func orZero[T int64 | float64](n *T) T {
	if n == nil {
		return 0
	}
	return *n
}

// A rateMeter computes a rate from the last readings of a count. The zero rateMeter has none. A pause, or a count that
// began at 0 again, begins a new series of readings: the rate of a page is that of the last seconds.
type rateMeter struct {
	at    [6]time.Time
	count [6]int64
	n     int // readings so far
}

// add adds a reading.
func (r *rateMeter) add(at time.Time, count int64) {
	if last := (r.n + len(r.at) - 1) % len(r.at); r.n > 0 && (at.Sub(r.at[last]) > columnLength || count < r.count[last]) {
		r.n = 0
	}
	r.at[r.n%len(r.at)], r.count[r.n%len(r.at)] = at, count
	r.n++
}

// perSecond returns the rate between the oldest and the newest reading, or nil if there are not two.
func (r *rateMeter) perSecond() *float64 {
	if r.n < 2 {
		return nil
	}
	newest, oldest := (r.n-1)%len(r.at), max(r.n-len(r.at), 0)%len(r.at)
	d := r.at[newest].Sub(r.at[oldest]).Seconds()
	if d <= 0 {
		return nil
	}
	return new(float64(r.count[newest]-r.count[oldest]) / d)
}
