package dashboard

import "time"

// A rateMeter computes a rate from the last readings of a count. The zero rateMeter has none.
type rateMeter struct {
	at    [6]time.Time
	count [6]int64
	n     int // readings so far
}

// add adds a reading.
func (r *rateMeter) add(at time.Time, count int64) {
	r.at[r.n%len(r.at)], r.count[r.n%len(r.at)] = at, count
	r.n++
}

// perSecond returns the rate between the oldest and the newest reading, or 0 if there are not two.
func (r *rateMeter) perSecond() float64 {
	if r.n < 2 {
		return 0
	}
	newest, oldest := (r.n-1)%len(r.at), max(r.n-len(r.at), 0)%len(r.at)
	d := r.at[newest].Sub(r.at[oldest]).Seconds()
	if d <= 0 {
		return 0
	}
	return max(float64(r.count[newest]-r.count[oldest])/d, 0)
}
