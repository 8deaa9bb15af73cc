package simulate

import (
	"math"
	"math/rand/v2"
	"strconv"
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

func (f Fixed) validate(p *validate.Problems) {
	p.NotNegative("Time", f.Time)
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

func (e Exponential) validate(p *validate.Problems) {
	p.Positive("Mean", e.Mean)
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

func (u Uniform) validate(p *validate.Problems) {
	p.NotNegative("Min", u.Min)
	p.Positive("Max", u.Max)
	if u.Max > 0 && u.Max < u.Min {
		p.Add("Max", u.Max, "must be at least {Min}, which is %v", u.Min)
	}
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

func (l LogNormal) validate(p *validate.Problems) {
	p.Positive("Median", l.Median)
	if l.P99 < l.Median || l.P99 <= 0 {
		p.Add("P99", l.P99, "must be at least {Median}, which is %v", l.Median)
	}
}

// duration returns that many nanoseconds, at most the longest Duration.
func duration(nanoseconds float64) time.Duration {
	if nanoseconds >= math.MaxInt64 {
		return math.MaxInt64
	}
	return time.Duration(math.Round(nanoseconds))
}

// UniformKeys are [Keys] "key-1", "key-2" and so on, each as frequent as the others.
type UniformKeys struct {
	// Count is how many keys there are. Required.
	Count int `json:"count" yaml:"count"`
}

// Key implements [Keys].
func (u UniformKeys) Key(r *rand.Rand) string { return keyName(1 + r.IntN(u.Count)) }

func (u UniformKeys) validate(p *validate.Problems) {
	keyCount(p, "Count", u.Count)
}

// AbuserKeys are [Keys] of which one, "abuser", has a share of the requests to itself. The others are "key-1", "key-2"
// and so on, each as frequent as the others.
type AbuserKeys struct {
	// Share is the abuser's share of all requests, from 0 to 1. Required.
	Share float64 `json:"share" yaml:"share"`
	// Others is how many other keys there are. Required.
	Others int `json:"others" yaml:"others"`
}

// Key implements [Keys].
func (a AbuserKeys) Key(r *rand.Rand) string {
	// Both numbers are drawn for each request, so that another Share leaves the keys of the others as they are.
	abuser, other := r.Float64() < a.Share, r.IntN(a.Others)
	if abuser {
		return "abuser"
	}
	return keyName(1 + other)
}

func (a AbuserKeys) validate(p *validate.Problems) {
	share(p, "Share", a.Share)
	keyCount(p, "Others", a.Others)
}

// ZipfKeys are [Keys] "key-1", "key-2" and so on of which the n-th is as frequent as 1 / n^Exponent: a few have most of
// the requests, as users of many services do.
type ZipfKeys struct {
	// Count is how many keys there are. Required.
	Count int `json:"count" yaml:"count"`
	// Exponent is how uneven the keys are, more than 0. With 1, which is near to what is often measured, the first of
	// 1,000 keys has 13 % of the requests. Required.
	Exponent float64 `json:"exponent" yaml:"exponent"`
}

// Key implements [Keys].
func (z ZipfKeys) Key(r *rand.Rand) string { return z.prepared().Key(r) }

func (z ZipfKeys) validate(p *validate.Problems) {
	keyCount(p, "Count", z.Count)
	if !(z.Exponent > 0 && z.Exponent <= maxExponent) {
		p.Add("Exponent", z.Exponent, "must be more than 0 and at most %d", maxExponent)
	}
}

// With maxExponent, all but one of a million million requests have the first key.
const maxExponent = 40

// prepared returns Keys for many calls.
func (z ZipfKeys) prepared() Keys {
	d := &zipf{exponent: z.Exponent, count: float64(z.Count)}
	d.first = d.integral(1.5) - 1
	d.last = d.integral(d.count + 0.5)
	d.near = 2 - d.inverse(d.integral(2.5)-d.density(2))
	return d
}

// A zipf draws from a Zipf distribution by rejection-inversion: it inverts the integral of the density, and rejects what
// the integral has more than the sum. It needs no table, is exact, and takes about 1.1 tries. See Hörmann and Derflinger,
// "Rejection-inversion to generate variates from monotone discrete distributions" (1996).
type zipf struct {
	exponent, count   float64
	first, last, near float64
}

func (z *zipf) Key(r *rand.Rand) string { return keyName(z.draw(r)) }

func (z *zipf) draw(r *rand.Rand) int {
	for {
		u := z.last + r.Float64()*(z.first-z.last)
		x := z.inverse(u)
		k := min(max(math.Floor(x+0.5), 1), z.count)
		if k-x <= z.near || u >= z.integral(k+0.5)-z.density(k) {
			return int(k)
		}
	}
}

// density is the density without its factor: 1 / x^exponent.
func (z *zipf) density(x float64) float64 { return math.Exp(-z.exponent * math.Log(x)) }

// integral is the integral of the density from 1 to x: (x^(1-exponent) - 1) / (1-exponent), or log x if the exponent is 1.
// Near 1 it keeps its digits.
func (z *zipf) integral(x float64) float64 {
	log := math.Log(x)
	y := (1 - z.exponent) * log
	if math.Abs(y) < 1e-8 {
		return log * (1 + y/2)
	}
	return log * math.Expm1(y) / y
}

func (z *zipf) inverse(u float64) float64 {
	y := max(u*(1-z.exponent), -1) // below -1 by rounding only
	if math.Abs(y) < 1e-8 {
		return math.Exp(u * (1 - y/2))
	}
	return math.Exp(u * math.Log1p(y) / y)
}

func keyName(n int) string { return "key-" + strconv.Itoa(n) }

func keyCount(p *validate.Problems, path string, count int) {
	if count < 1 || count > maxKeys {
		p.Add(path, count, "must be at least 1 and at most %d", maxKeys)
	}
}

const maxKeys = 1_000_000_000

// FixedCost are [Costs] that are all the same.
type FixedCost struct {
	// Permits is how many permits each request takes; 0 means that requests take none.
	Permits int
}

// Cost implements [Costs].
func (f FixedCost) Cost(*rand.Rand) int { return f.Permits }

func (f FixedCost) validate(p *validate.Problems) {
	p.AtLeast("Permits", f.Permits, 0)
}

// UniformCost are [Costs] of which each from Min to Max is as likely as any other.
type UniformCost struct {
	// Min is the fewest permits of a request.
	Min int `json:"min,omitempty" yaml:"min,omitempty"`
	// Max is the most permits of a request. Required.
	Max int `json:"max" yaml:"max"`
}

// Cost implements [Costs].
func (u UniformCost) Cost(r *rand.Rand) int {
	return u.Min + int(r.Uint64N(uint64(u.Max-u.Min)+1)) //nolint:gosec // at most Max-Min, and that is not negative
}

func (u UniformCost) validate(p *validate.Problems) {
	p.AtLeast("Min", u.Min, 0)
	p.AtLeast("Max", u.Max, max(u.Min, 1))
}

// MixedCost are [Costs] of a few kinds of requests, such as many that take one permit and a few that take a hundred.
type MixedCost struct {
	// Shares are the kinds. Required.
	Shares []CostShare
}

// A CostShare is one kind of requests in a [MixedCost].
type CostShare struct {
	// Permits is how many permits a request of the kind takes.
	Permits int `json:"permits" yaml:"permits"`
	// Weight is how frequent the kind is, relative to the sum of all weights. Required.
	Weight float64 `json:"weight" yaml:"weight"`
}

// Cost implements [Costs].
func (m MixedCost) Cost(r *rand.Rand) int {
	sum := 0.0
	for _, s := range m.Shares {
		sum += s.Weight
	}
	at := r.Float64() * sum
	last := len(m.Shares) - 1
	for _, s := range m.Shares[:last] {
		if at < s.Weight {
			return s.Permits
		}
		at -= s.Weight
	}
	return m.Shares[last].Permits
}

func (m MixedCost) validate(p *validate.Problems) {
	if len(m.Shares) == 0 {
		p.Add("Shares", nil, "must have at least one kind of requests")
	}
	for i, s := range m.Shares {
		path := "Shares[" + strconv.Itoa(i) + "]"
		p.AtLeast(path+".Permits", s.Permits, 0)
		if !(s.Weight > 0 && s.Weight <= math.MaxInt32) {
			p.Add(path+".Weight", s.Weight, "must be more than 0 and at most %d", math.MaxInt32)
		}
	}
}
