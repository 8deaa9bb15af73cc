package simulate

import (
	"math"
	"math/rand/v2"
	"strconv"

	"github.com/weir-go/weir/internal/validate"
)

// FixedCost are [Costs] that are all the same.
type FixedCost struct {
	// Permits is how many permits each request takes; 0 means that requests take none.
	Permits int
}

// Cost implements [Costs].
func (f FixedCost) Cost(*rand.Rand) int { return f.Permits }

func (f FixedCost) validate() error {
	var p validate.Problems
	p.AtLeast("Permits", f.Permits, 0)
	return p.Err("simulate")
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

func (u UniformCost) validate() error {
	var p validate.Problems
	p.AtLeast("Min", u.Min, 0)
	p.AtLeast("Max", u.Max, max(u.Min, 1))
	return p.Err("simulate")
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

func (m MixedCost) validate() error {
	var p validate.Problems
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
	return p.Err("simulate")
}
