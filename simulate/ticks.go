package simulate

import (
	"math"
	"time"
)

// A unit is what an axis counts.
type unit int

const (
	unitNumber unit = iota // rates
	unitCount              // whole numbers
	unitTime               // nanoseconds
)

// format returns v as an axis and a label show it.
func (u unit) format(v float64) string {
	if u == unitTime {
		return formatDuration(toDuration(v))
	}
	return formatNumber(v)
}

// toDuration returns the duration of v nanoseconds, without overflow.
func toDuration(v float64) time.Duration {
	if v >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(v)
}

// ticks returns round values from 0 to limit, at most n of them after 0.
func (u unit) ticks(limit float64, n int) []float64 {
	if !(limit > 0) || math.IsInf(limit, 0) {
		return []float64{0}
	}
	step := u.step(limit / float64(max(n, 1)))
	var values []float64
	for i := 0; float64(i)*step <= limit*(1+1e-9); i++ {
		values = append(values, float64(i)*step)
	}
	return values
}

// step returns the smallest round step that is at least the given one, or a little less.
func (u unit) step(least float64) float64 {
	least *= 0.95
	if u == unitTime && least > float64(10*time.Second) {
		const day = 24 * time.Hour
		for _, step := range []time.Duration{
			15 * time.Second, 30 * time.Second, time.Minute, 2 * time.Minute, 5 * time.Minute, 10 * time.Minute, 15 * time.Minute,
			30 * time.Minute, time.Hour, 2 * time.Hour, 3 * time.Hour, 6 * time.Hour, 12 * time.Hour, day,
		} {
			if float64(step) >= least {
				return float64(step)
			}
		}
		return unitNumber.step(least/float64(day)) * float64(day)
	}
	if u == unitCount && least < 1 {
		return 1
	}
	size := math.Pow(10, math.Floor(math.Log10(least)))
	for _, factor := range []float64{1, 2, 5} {
		if size*factor >= least {
			return size * factor
		}
	}
	return size * 10
}
