package simulate

import (
	"math"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// Fixed are [Durations] that are all the same.
type Fixed struct {
	// Time is how long each is. The zero value is no time.
	Time time.Duration
}

// Duration implements [Durations].
func (f Fixed) Duration(*rand.Rand) time.Duration { return f.Time }

func (f Fixed) validate() error {
	var p validate.Problems
	p.NotNegative("Time", f.Time)
	return p.Err("simulate")
}

// Exponential are [Durations] with an exponential distribution, which the formulas of queueing theory assume.
type Exponential struct {
	// Mean is the mean, more than 0. Required.
	Mean time.Duration `json:"mean" yaml:"mean"`
}

// Duration implements [Durations].
func (e Exponential) Duration(r *rand.Rand) time.Duration {
	return duration(float64(e.Mean) * r.ExpFloat64())
}

func (e Exponential) validate() error {
	var p validate.Problems
	p.Positive("Mean", e.Mean)
	return p.Err("simulate")
}

// Uniform are [Durations] of which each from Min to Max is as likely as any other.
type Uniform struct {
	// Min is the shortest. The default is 0.
	Min time.Duration `json:"min,omitempty" yaml:"min,omitempty"`
	// Max is the longest. Required.
	Max time.Duration `json:"max" yaml:"max"`
}

// Duration implements [Durations].
func (u Uniform) Duration(r *rand.Rand) time.Duration {
	return u.Min + time.Duration(r.Uint64N(uint64(u.Max-u.Min)+1)) //nolint:gosec // at most Max-Min, and that is not negative
}

func (u Uniform) validate() error {
	var p validate.Problems
	p.NotNegative("Min", u.Min)
	p.Positive("Max", u.Max)
	if u.Max > 0 && u.Max < u.Min {
		p.Add("Max", u.Max, "must be at least {Min}, which is %v", u.Min)
	}
	return p.Err("simulate")
}

// LogNormal are [Durations] with a log-normal distribution, which the latencies of many services have: most are near the
// median, and a few are much longer.
type LogNormal struct {
	// Median is the length that half of them do not reach. Required.
	Median time.Duration `json:"median" yaml:"median"`
	// P99 is the length that 99 of 100 do not reach. Required, and at least Median.
	P99 time.Duration `json:"p99" yaml:"p99"`
}

// normal99 is the standard normal distribution's quantile of 99 %.
const normal99 = 2.3263478740408408

// Duration implements [Durations].
func (l LogNormal) Duration(r *rand.Rand) time.Duration {
	deviation := math.Log(float64(l.P99)/float64(l.Median)) / normal99
	return duration(float64(l.Median) * math.Exp(deviation*r.NormFloat64()))
}

func (l LogNormal) validate() error {
	var p validate.Problems
	p.Positive("Median", l.Median)
	if l.P99 < l.Median || l.P99 <= 0 {
		p.Add("P99", l.P99, "must be at least {Median}, which is %v", l.Median)
	}
	return p.Err("simulate")
}

// duration returns that many nanoseconds, at most the longest Duration.
func duration(nanoseconds float64) time.Duration {
	if nanoseconds >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(math.Round(nanoseconds))
}
