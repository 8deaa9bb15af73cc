package simulate

import (
	"cmp"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/strategies/retry"
)

// The defaults of a [Scenario], and its bounds.
const (
	defaultPoints      = 120
	defaultMaxInFlight = 100_000
	shortestInterval   = time.Millisecond
	mostPoints         = 100_000
	mostInstances      = 10_000
	longestLoad        = 10 * 365 * 24 * time.Hour
)

// withDefaults returns s with the defaults filled in.
func (s Scenario) withDefaults() Scenario {
	if r := s.Load.Recording; r != nil && s.Load.For == 0 {
		s.Load.For = r.Length + 1 // the last request is before the end
	}
	s.Instances = cmp.Or(s.Instances, 1)
	s.Interval = cmp.Or(s.Interval, max(s.Load.For/defaultPoints, shortestInterval))
	s.MaxInFlight = cmp.Or(s.MaxInFlight, defaultMaxInFlight)
	if s.Windows == nil {
		s.Windows = []time.Duration{time.Second}
	}
	return s
}

// Validate returns a [weir.OptionsError] with everything that is wrong with s, or nil. [Run] calls it.
func (s Scenario) Validate() error {
	var p validate.Problems
	length := s.withDefaults().Load.For // that of the recording if For is 0
	if s.Config == nil {
		p.Add("Config", nil, "must not be nil")
	}
	p.AtLeast("Instances", s.Instances, 0)
	p.AtLeast("MaxInFlight", s.MaxInFlight, 0)
	if s.Instances > mostInstances {
		p.Add("Instances", s.Instances, "must be at most %d", mostInstances)
	}
	s.Load.validate(&p)
	if c, most := s.Load.Closed, cmp.Or(s.MaxInFlight, defaultMaxInFlight); c != nil && most > 0 && c.Clients > most {
		p.Add("Load.Closed.Clients", c.Clients, "must be at most {MaxInFlight}, which is %d", most)
	}
	s.Service.validate(&p)
	s.Clients.OnRejection.validate("Clients.OnRejection", &p)
	s.Clients.OnFailure.validate("Clients.OnFailure", &p)
	p.NotNegative("Clients.Timeout", s.Clients.Timeout)
	switch {
	case s.Interval == 0:
	case s.Interval < shortestInterval:
		p.Add("Interval", s.Interval, "must be at least %v, or 0 for a %dth of the load's duration", shortestInterval, defaultPoints)
	case length/s.Interval > mostPoints:
		p.Add("Interval", s.Interval, "must be at least %v for a load of %v, so that the result has at most %d points", length/mostPoints, length, mostPoints)
	}
	for i, w := range s.Windows {
		p.Positive(fmt.Sprintf("Windows[%d]", i), w)
	}
	return p.Err("simulate")
}

func (l *Load) validate(p *validate.Problems) {
	kinds := 0
	for _, set := range []bool{l.Open != nil, l.Closed != nil, l.Recording != nil} {
		if set {
			kinds++
		}
	}
	if kinds != 1 {
		p.Add("Load", nil, "must have one of Open, Closed and Recording, has %d", kinds)
	}
	if l.Recording == nil {
		p.Positive("Load.For", l.For)
	} else {
		p.NotNegative("Load.For", l.For)
	}
	if l.For > longestLoad {
		p.Add("Load.For", l.For, "must be at most %v", longestLoad)
	}
	if l.Open != nil {
		include(p, "Load.Open.Rate", l.Open.Rate, true)
	}
	if c := l.Closed; c != nil {
		p.AtLeast("Load.Closed.Clients", c.Clients, 1)
		include(p, "Load.Closed.Think", c.Think, true)
	}
	include(p, "Load.Keys", l.Keys, false)
	include(p, "Load.Cost", l.Cost, false)
}

func (s *Service) validate(p *validate.Problems) {
	include(p, "Service.Latency", s.Latency, false)
	p.AtLeast("Service.Capacity", s.Capacity, 0)
	if s.QueueLimit < -1 {
		p.Add("Service.QueueLimit", s.QueueLimit, "must be at least 0, or -1 for no queue")
	}
	share(p, "Service.FailureRate", s.FailureRate)
	for i, period := range s.Periods {
		path := fmt.Sprintf("Service.Periods[%d].", i)
		fromTo(p, path, period.From, period.To)
		share(p, path+"FailureRate", period.FailureRate)
		include(p, path+"Latency", period.Latency, false)
		p.AtLeast(path+"Capacity", period.Capacity, 0)
	}
}

func (r *Reaction) validate(path string, p *validate.Problems) {
	p.AtLeast(path+".MaxRetries", r.MaxRetries, 0)
	p.NotNegative(path+".Delay", r.Delay)
	p.NotNegative(path+".MaxDelay", r.MaxDelay)
	if _, err := r.Backoff.MarshalText(); err != nil {
		p.Add(path+".Backoff", r.Backoff, "must be %v, %v or %v", retry.Constant, retry.Linear, retry.Exponential)
	}
}

// include adds the problems of a part of the scenario that is an interface. A kind of the program has none.
func include(p *validate.Problems, path string, v any, required bool) {
	if isnil.Value(v) {
		if required || v != nil {
			p.Add(path, nil, "must not be nil")
		}
		return
	}
	if own, ok := v.(interface{ validate() error }); ok {
		p.Include(path, own.validate())
	}
}

// fromTo adds a problem if a period does not begin in the simulation, or does not end after its beginning. The path ends
// with a dot, or is empty.
func fromTo(p *validate.Problems, path string, from, to time.Duration) {
	p.NotNegative(path+"From", from)
	if to <= from {
		p.Add(path+"To", to, "must be more than {From}, which is %v", from)
	}
}

// share adds a problem if v is not from 0 to 1, or not a number.
func share(p *validate.Problems, path string, v float64) {
	if !(v >= 0 && v <= 1) {
		p.Add(path, v, "must be from 0 to 1")
	}
}
