package simulate

import (
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// A rateFile is a [Rate] in a file: one kind of it, or the sum of several.
type rateFile struct {
	_       struct{} `reload:"oneof=rate"`
	oneRate `yaml:",inline"`
	Sum     []summand `yaml:"sum,omitempty" doc:"The sum of several rates, such as a constant one and bursts."`
}

// A summand is a rate that is no sum.
type summand struct {
	_       struct{} `reload:"oneof=rate"`
	oneRate `yaml:",inline"`
}

type oneRate struct {
	Constant *float64 `yaml:"constant,omitempty" doc:"A rate that stays the same: how many requests arrive in a second."`
	Ramp     *Ramp    `yaml:"ramp,omitempty" doc:"A rate that rises or falls evenly, and then stays the same."`
	Steps    []Step   `yaml:"steps,omitempty" doc:"A rate that changes from one step to the next."`
	Sine     *Sine    `yaml:"sine,omitempty" doc:"A rate that rises and falls like the traffic of days."`
	Bursts   *Bursts  `yaml:"bursts,omitempty" doc:"Many requests at the same instant, as when a job starts or a cache expires."`
}

// kindOf adds the problems of a kind, if it is set.
func kindOf[T interface{ validate() error }](p *validate.Problems, path string, kind *T) {
	if kind != nil {
		p.Include(path, (*kind).validate())
	}
}

// Validate checks the kind that is set.
func (r oneRate) Validate() error {
	var p validate.Problems
	kindOf(&p, "Ramp", r.Ramp)
	kindOf(&p, "Sine", r.Sine)
	kindOf(&p, "Bursts", r.Bursts)
	if r.Constant != nil {
		positiveRate(&p, "Constant", *r.Constant)
	}
	if r.Steps != nil {
		p.Include("", Steps{Steps: r.Steps}.validate())
	}
	return p.Err("simulate")
}

// rate returns the rate that is set.
func (r oneRate) rate() Rate {
	switch {
	case r.Constant != nil:
		return ConstantRate{Rate: *r.Constant}
	case r.Ramp != nil:
		return *r.Ramp
	case r.Sine != nil:
		return *r.Sine
	case r.Bursts != nil:
		return *r.Bursts
	default:
		return Steps{Steps: r.Steps}
	}
}

// Validate checks the kind that is set.
func (r rateFile) Validate() error {
	if r.Sum != nil && len(r.Sum) == 0 {
		var p validate.Problems
		p.Add("Sum", nil, "must have at least one rate")
		return p.Err("simulate")
	}
	return r.oneRate.Validate()
}

// rate returns the rate that is set.
func (r rateFile) rate() Rate {
	if r.Sum == nil {
		return r.oneRate.rate()
	}
	var all Sum
	for _, one := range r.Sum {
		all = append(all, one.rate())
	}
	return all
}

// A durationsFile is [Durations] in a file.
type durationsFile struct {
	_           struct{}       `reload:"oneof=distribution"`
	Fixed       *time.Duration `yaml:"fixed,omitempty" doc:"Always the same time."`
	Exponential *Exponential   `yaml:"exponential,omitempty" doc:"An exponential distribution, which the formulas of queueing theory assume."`
	Uniform     *Uniform       `yaml:"uniform,omitempty" doc:"Each time from min to max is as likely as any other."`
	LogNormal   *LogNormal     `yaml:"log_normal,omitempty" doc:"A log-normal distribution, which the latencies of many services have: most are near the median, and a few are much longer."`
}

// Validate checks the kind that is set.
func (d durationsFile) Validate() error {
	var p validate.Problems
	kindOf(&p, "Exponential", d.Exponential)
	kindOf(&p, "Uniform", d.Uniform)
	kindOf(&p, "LogNormal", d.LogNormal)
	if d.Fixed != nil {
		p.NotNegative("Fixed", *d.Fixed)
	}
	return p.Err("simulate")
}

// durations returns the distribution that is set, or nil if d is nil.
func (d *durationsFile) durations() Durations {
	switch {
	case d == nil:
		return nil
	case d.Exponential != nil:
		return *d.Exponential
	case d.Uniform != nil:
		return *d.Uniform
	case d.LogNormal != nil:
		return *d.LogNormal
	default:
		return Fixed{Time: *d.Fixed}
	}
}

// A keysFile is [Keys] in a file.
type keysFile struct {
	_       struct{}     `reload:"oneof=keys"`
	Uniform *UniformKeys `yaml:"uniform,omitempty" doc:"Each key is as frequent as the others."`
	Zipf    *ZipfKeys    `yaml:"zipf,omitempty" doc:"A few keys have most of the requests, as users of many services do."`
	Abuser  *AbuserKeys  `yaml:"abuser,omitempty" doc:"One key has a share of the requests to itself, and the others share the rest evenly."`
}

// Validate checks the kind that is set.
func (k keysFile) Validate() error {
	var p validate.Problems
	kindOf(&p, "Uniform", k.Uniform)
	kindOf(&p, "Zipf", k.Zipf)
	kindOf(&p, "Abuser", k.Abuser)
	return p.Err("simulate")
}

// keys returns the keys that are set, or nil if k is nil.
func (k *keysFile) keys() Keys {
	switch {
	case k == nil:
		return nil
	case k.Uniform != nil:
		return *k.Uniform
	case k.Zipf != nil:
		return *k.Zipf
	default:
		return *k.Abuser
	}
}

// A costsFile is [Costs] in a file.
type costsFile struct {
	_       struct{}     `reload:"oneof=cost"`
	Fixed   *int         `yaml:"fixed,omitempty" reload:"least=0" doc:"Each request takes as many permits."`
	Uniform *UniformCost `yaml:"uniform,omitempty" doc:"Each number from min to max is as likely as any other."`
	Shares  []CostShare  `yaml:"mixed,omitempty" doc:"A few kinds of requests, such as many that take one permit and a few that take a hundred."`
}

// Validate checks the kind that is set.
func (c costsFile) Validate() error {
	var p validate.Problems
	kindOf(&p, "Uniform", c.Uniform)
	if c.Shares != nil {
		p.Include("", MixedCost{Shares: c.Shares}.validate())
	}
	return p.Err("simulate")
}

// costs returns the costs that are set, or nil if c is nil.
func (c *costsFile) costs() Costs {
	switch {
	case c == nil:
		return nil
	case c.Uniform != nil:
		return *c.Uniform
	case c.Shares != nil:
		return MixedCost{Shares: c.Shares}
	default:
		return FixedCost{Permits: *c.Fixed}
	}
}
