package store

import (
	"math"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// A lineAccount is what this instance takes of the permits of one line.
type lineAccount struct {
	number    int64
	available int64 // at the start of the line
	taken     int64
	takenLate int64 // the part of taken that was taken after shareTime
	quota     int64 // what may be taken before shareTime; 0: not computed yet
	allowed   int64 // what may be taken until now: the quota, and after shareTime one step more
	step      int64 // what allowed grows by next
}

const (
	// firstShare is the share before anything is known of rivals. No share falls below minShare.
	firstShare = 1. / 8
	minShare   = 1. / 64
	// maxShareTime bounds shareTime.
	maxShareTime = time.Second
)

// shareTime returns how long after a line instances keep to their quotas.
func shareTime(d *backend.Definition) time.Duration {
	return min(duration(d.Period)/4*3, fullAfter(d)/2, maxShareTime)
}

// fullAfter returns how long it takes until all permits have come back.
func fullAfter(d *backend.Definition) time.Duration {
	switch d.Kind {
	case rate.TokenBucket:
		return duration(saturate.Mul(d.Period, (d.Permits-1)/max(d.Refill, 1)+1))
	case rate.SlidingWindow:
		return duration(saturate.Mul(d.Period, d.Segments))
	default:
		return duration(d.Period)
	}
}

// jitter returns d, a quarter more or less at random.
func (f *fairness) jitter(d float64) time.Duration {
	return time.Duration(d * (0.75 + f.random.Float64()/2))
}

// hasQuota reports whether this instance keeps to its quota before shareTime.
func (f *fairness) hasQuota(now time.Time) bool {
	return f.observed.def != nil && f.hasRivals(now) && !f.far(f.observed.def) && shareTime(f.observed.def) >= 2*time.Millisecond
}

// maxRequest returns how many permits to ask for at most. It starts a new account on a new line, and allows the next
// step after shareTime.
func (f *fairness) maxRequest(now time.Time) int64 {
	if !f.hasQuota(now) {
		return math.MaxInt64
	}
	d := f.observed.def
	at := f.observed.now + now.Sub(f.observed.got).Microseconds()
	s := d.Advanced(f.observed.state, at)
	if s.Line != f.line.number {
		f.startLine(s.Line, d.Free(&s))
	}
	t := &f.line
	if t.allowed == 0 {
		if f.share == 0 {
			f.share = firstShare
		}
		t.quota = max(int64(f.share*float64(t.available)+f.shortfall+f.random.Float64()), 1)
		t.allowed, t.step = t.quota, t.quota
	}
	if t.taken >= t.allowed && t.untilShareEnd(d, at) <= 0 {
		t.allowed = saturate.Add(t.taken, t.step)
		t.step = saturate.Add(t.step, t.step)
	}
	return max(t.allowed-t.taken, 1)
}

// untilShareEnd returns the µs from the moment at, by the store's clock, to the end of shareTime.
func (t *lineAccount) untilShareEnd(d *backend.Definition, at int64) int64 {
	return d.TimeOf(t.number) + shareTime(d).Microseconds() - at
}

// adjustShare halves the share if the quota was not available, and sets restUntil if this instance has taken what it is
// allowed.
func (f *fairness) adjustShare(o observation, now time.Time) {
	t, d := &f.line, o.def
	if t.allowed == 0 {
		return
	}
	left := t.untilShareEnd(d, o.now)
	if left <= 0 {
		t.takenLate += max(o.own, 0)
	}
	switch {
	case left > 0 && o.rejected && t.taken < t.allowed && t.available > 1:
		f.share = max(f.share/2, float64(t.taken)/float64(t.available), minShare)
		t.quota = max(t.taken, 1)
		t.allowed = t.quota
	case t.taken < t.allowed || d.Free(&f.observed.state) == 0: // no rest is needed
	case left > 0:
		// The smaller the share, the earlier this instance takes from the rest.
		f.restUntil = now.Add(duration(left) + f.jitter(float64(shareTime(d))/3*f.share))
	default:
		f.restUntil = now.Add(f.jitter(float64(shareTime(d)) / 16))
	}
}

// startLine adjusts the share by the last line and starts the account of another one.
func (f *fairness) startLine(number, available int64) {
	if t := &f.line; t.allowed > 0 && t.available > 1 {
		even := f.share * float64(t.available)
		f.shortfall = min(max(f.shortfall+even-float64(min(t.taken, t.quota)), -even), even)
		f.share = min(f.share+min(float64(t.takenLate)/float64(t.available)/2, 1./16), 1)
	}
	if f.line.quota > 1 { // so that something is left after shareTime for instances whose share is too small
		f.share = max(f.share*15/16, minShare)
	}
	f.line = lineAccount{number: number, available: available}
}
