package simulate

import (
	"math"
	"sort"
	"strconv"
	"time"

	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/internal/validate"
)

// ConstantRate is a [Rate] that stays the same.
type ConstantRate struct {
	// Rate is how many requests arrive in a second. Required.
	Rate float64
}

// Arrivals implements [Rate].
func (c ConstantRate) Arrivals(until time.Duration) float64 { return times(c.Rate, until) }

func (c ConstantRate) validate(p *validate.Problems) {
	positiveRate(p, "Rate", c.Rate)
}

// Ramp is a [Rate] that rises or falls evenly, and then stays the same.
type Ramp struct {
	// From is how many requests a second arrive at the beginning.
	From float64 `json:"from,omitempty" yaml:"from,omitempty"`
	// To is how many requests a second arrive at the end of For, and afterwards.
	To float64 `json:"to" yaml:"to"`
	// For is how long it takes from From to To. Required.
	For time.Duration `json:"for" yaml:"for"`
}

// Arrivals implements [Rate].
func (r Ramp) Arrivals(until time.Duration) float64 {
	return ramped(r.From, r.To, r.For, min(until, r.For)) + times(r.To, max(until-r.For, 0))
}

func (r Ramp) validate(p *validate.Problems) {
	rate(p, "From", r.From)
	rate(p, "To", r.To)
	if r.From == 0 && r.To == 0 {
		p.Add("To", r.To, "must be more than 0 if {From} is 0")
	}
	p.Positive("For", r.For)
}

// Steps is a [Rate] that changes from one step to the next.
type Steps struct {
	// Steps are the steps, the first at the beginning. Required.
	Steps []Step
}

// A Step is a part of [Steps].
type Step struct {
	// Rate is how many requests a second arrive. 0 is a pause.
	Rate float64 `json:"rate" yaml:"rate"`
	// For is how long the step lasts. Required, except for the last step: if that has 0, it never ends. After the end of
	// the last step no requests arrive.
	For time.Duration `json:"for,omitempty" yaml:"for,omitempty"`
	// Ramp is the first part of For, in which the rate rises or falls evenly from that of the step before, or from 0 in
	// the first step. 0 means that the rate changes at once.
	Ramp time.Duration `json:"ramp,omitempty" yaml:"ramp,omitempty"`
}

// Arrivals implements [Rate].
func (s Steps) Arrivals(until time.Duration) float64 { return s.prepared().Arrivals(until) }

func (s Steps) validate(p *validate.Problems) {
	if len(s.Steps) == 0 {
		p.Add("Steps", nil, "must have at least one step")
	}
	some := false
	for i, step := range s.Steps {
		path := "Steps[" + strconv.Itoa(i) + "]"
		rate(p, path+".Rate", step.Rate)
		some = some || step.Rate != 0
		last := i == len(s.Steps)-1
		switch {
		case step.For < 0 || step.For == 0 && !last:
			p.Add(path+".For", step.For, "must be more than 0; only the last step can be without an end")
		case step.Ramp < 0 || step.Ramp > step.For && step.For > 0:
			p.Add(path+".Ramp", step.Ramp, "must be at least 0 and at most {For}, which is %v", step.For)
		}
	}
	if !some && len(s.Steps) > 0 {
		p.Add("Steps", nil, "must have a step with a Rate of more than 0")
	}
}

// prepared returns a Rate for many calls.
func (s Steps) prepared() Rate {
	var c changes
	at, before, arrived := time.Duration(0), 0.0, 0.0
	add := func(from, to float64, length time.Duration) {
		if length > 0 {
			c.parts = append(c.parts, part{begin: at, before: arrived, from: from, to: to, length: length})
			at = saturate.Add(at, length)
			arrived += ramped(from, to, length, length)
		}
	}
	for _, step := range s.Steps {
		add(before, step.Rate, step.Ramp)
		if step.For == 0 {
			step.For = math.MaxInt64
		}
		add(step.Rate, step.Rate, step.For-step.Ramp)
		before = step.Rate
	}
	add(0, 0, math.MaxInt64-at)
	return &c
}

// A part is a time in which the rate changes evenly.
type part struct {
	begin    time.Duration
	before   float64 // how many have arrived at its beginning
	from, to float64 // the rates at its beginning and end
	length   time.Duration
}

// changes are [Steps] whose sums are known.
type changes struct{ parts []part } // the first begins at 0

func (c *changes) Arrivals(until time.Duration) float64 {
	i := sort.Search(len(c.parts), func(i int) bool { return c.parts[i].begin > until })
	p := &c.parts[max(i-1, 0)]
	return p.before + ramped(p.from, p.to, p.length, until-p.begin)
}

// Sine is a [Rate] that rises and falls like the traffic of days. It begins at the mean and rises first.
type Sine struct {
	// Mean is how many requests a second arrive on average. Required.
	Mean float64 `json:"mean" yaml:"mean"`
	// Amplitude is how far the rate rises above the mean and falls below it. Required, and at most Mean.
	Amplitude float64 `json:"amplitude" yaml:"amplitude"`
	// Period is the time from one peak to the next. Required.
	Period time.Duration `json:"period" yaml:"period"`
}

// Arrivals implements [Rate].
func (s Sine) Arrivals(until time.Duration) float64 {
	// 1 - cos 2x is 2 sin² x, which does not lose its digits near 0. Whole periods add up to nothing.
	half := math.Sin(math.Pi * float64(until%s.Period) / float64(s.Period))
	return times(s.Mean, until) + times(s.Amplitude, s.Period)/math.Pi*half*half
}

func (s Sine) validate(p *validate.Problems) {
	positiveRate(p, "Mean", s.Mean)
	if !(s.Amplitude >= 0 && s.Amplitude <= s.Mean) {
		p.Add("Amplitude", s.Amplitude, "must be at least 0 and at most {Mean}, which is %v", s.Mean)
	}
	p.Positive("Period", s.Period)
}

// Bursts is a [Rate] of which many requests arrive at the same instant, as they do when a job starts or a cache expires.
type Bursts struct {
	// Size is how many requests arrive at once. Required.
	Size int `json:"size" yaml:"size"`
	// Every is the time from one burst to the next. 0 means that there is only one.
	Every time.Duration `json:"every,omitempty" yaml:"every,omitempty"`
	// First is when the first burst arrives. 0 is the beginning.
	First time.Duration `json:"first,omitempty" yaml:"first,omitempty"`
}

// Arrivals implements [Rate]. A burst at the time until is not counted.
func (b Bursts) Arrivals(until time.Duration) float64 {
	switch {
	case until <= b.First:
		return 0
	case b.Every == 0:
		return float64(b.Size)
	default:
		return float64(b.Size) * float64((until-b.First-1)/b.Every+1)
	}
}

func (b Bursts) validate(p *validate.Problems) {
	p.AtLeast("Size", b.Size, 1)
	p.NotNegative("Every", b.Every)
	p.NotNegative("First", b.First)
}

// Sum is a [Rate] that is the sum of others, such as a [ConstantRate] with [Bursts].
type Sum []Rate

// Arrivals implements [Rate].
func (s Sum) Arrivals(until time.Duration) float64 {
	sum := 0.0
	for _, r := range s {
		sum += r.Arrivals(until)
	}
	return sum
}

func (s Sum) validate(p *validate.Problems) {
	if len(s) == 0 {
		p.Add("", nil, "Sum must have at least one Rate")
	}
	for i, r := range s {
		include(p, "["+strconv.Itoa(i)+"]", r, true)
	}
}

// prepared returns a Rate for many calls.
func (s Sum) prepared() Rate {
	all := make(Sum, len(s))
	for i, r := range s {
		all[i] = prepared(r)
	}
	return all
}

// times returns how many requests arrive at that rate. The product comes first: of whole numbers it is exact.
func times(rate float64, d time.Duration) float64 { return rate * float64(d) / 1e9 }

// ramped returns how many requests arrive in the first d of a length in which the rate changes evenly.
func ramped(from, to float64, length, d time.Duration) float64 {
	if from == to {
		return times(from, d)
	}
	return times(from, d) + times((to-from)/2*(float64(d)/float64(length)), d)
}

// rate adds a problem if a rate is negative or not a finite number.
func rate(p *validate.Problems, path string, r float64) {
	if !(r >= 0 && r <= maxRate) {
		p.Add(path, r, "must be at least 0 and at most 1e9")
	}
}

// positiveRate adds a problem if a rate is not above 0 or not a finite number.
func positiveRate(p *validate.Problems, path string, r float64) {
	if !(r > 0 && r <= maxRate) {
		p.Add(path, r, "must be more than 0 and at most 1e9")
	}
}

// maxRate is one request a nanosecond, the resolution of the simulation.
const maxRate = 1e9
