package simulate

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/simulate/internal/input"
	"github.com/weir-go/weir/strategies/retry"
)

// A Scenario is what [Run] simulates. Config and Load are required, and so is Pipeline if Config defines several. Run does
// not change a Scenario, and several runs can use one at the same time.
type Scenario struct {
	// Config defines the pipelines. [File] makes one of a configuration file.
	Config Config
	// Pipeline is the name of the pipeline that the requests go through. If empty, Config must define exactly one.
	Pipeline string
	// Instances is how many instances of the program there are. Each has a registry of its own, and requests go to them in
	// turn. 0 means 1, and 10,000 are the most.
	Instances int
	// Load is the requests that arrive.
	Load Load
	// Service is what the pipeline protects. The zero Service answers at once and never fails.
	Service Service
	// Clients is how the clients behave. The zero Clients wait for each answer however long it takes, and give up
	// at the first error.
	Clients Clients
	// Seed is where the random numbers begin. The same Seed gives the same Result; 0 is a seed like any other.
	Seed uint64
	// Interval is the length of the elements of [Result.Series], at least 1 ms. 0 means a 120th of the load's duration.
	Interval time.Duration
	// Windows are the lengths of time for which [Result.Most] has the largest number of permits. If nil, there is one
	// window, of one second. If empty but not nil, there is none. A window takes 32 bytes for each call of the service in
	// it, so long ones take much memory under a high load.
	Windows []time.Duration
	// MaxInFlight is how many requests can be in flight at a time or, in a closed load, how many clients there can be. With
	// more, Run returns an error. Each takes about 10 kB. 0 means 100,000.
	MaxInFlight int
}

// A Config defines the pipelines of one instance, in the Define of the change that it returns. [File] makes a Config of a
// configuration file. A Config runs in the bubble of the simulation, once for each instance: what belongs to the pipelines,
// such as a limiter, must be made in the Config or in the functions of Define. Only the Config and these functions may use s.
type Config func(s *Setup) (registry.Change, error)

// A Load is the requests of a [Scenario]: exactly one of Open, Closed and Recording.
//
// In an open load, requests arrive however long the answers take, as they do from many independent users. In a closed
// load, a number of clients each wait for an answer before they send again, as workers of a pool do: they slow down with
// the service. Which of the two it is decides what an overload looks like, so there is no default.
type Load struct {
	// For is how long requests arrive. Required, except for a Recording: there 0 means its whole length, with the request at its
	// end. A longer For than the Recording adds no requests.
	For time.Duration
	// Open makes requests arrive by a rate.
	Open *Open
	// Closed makes clients send requests and wait for their answers.
	Closed *Closed
	// Recording has requests that were recorded. See [ReadCSV] and [ReadAccessLog].
	Recording *Recording
	// Keys are the keys of the requests, such as their users: [UniformKeys], [ZipfKeys] or [AbuserKeys]. If nil, all
	// requests have the empty key. For a Recording, Keys is ignored.
	Keys Keys
	// Cost is how many permits a request takes, if the pipeline's limiter asks [Cost]: a [FixedCost], [UniformCost] or
	// [MixedCost]. If nil, each takes 1. For a Recording, Cost is ignored.
	Cost Costs
}

// Open are requests that arrive by a rate.
type Open struct {
	// Rate is how many requests a second arrive, over time: a [ConstantRate], [Ramp], [Steps], [Sine], [Bursts] or the
	// [Sum] of several. Required.
	Rate Rate
	// Poisson makes the arrivals random: independent of each other, as those of many users are. If false, the requests are
	// evenly spaced.
	Poisson bool
}

// Closed is a number of clients, each of which sends a request, waits for its answer, thinks, and sends the next.
type Closed struct {
	// Clients is how many clients there are, at least 1. Required.
	Clients int
	// Think is how long a client waits after an answer, and before its first request. Required. A time below 1 µs counts as
	// 1 µs. With a short one and a fast pipeline, the load is as many requests as the simulation can run.
	Think Durations
	// SameKey makes all requests of a client have the key that the client drew first.
	SameKey bool
}

// A Rate is how many requests arrive over time. It must be safe for concurrent use.
type Rate interface {
	// Arrivals returns how many requests arrive from the beginning until that time. It is 0 at 0 and never falls.
	Arrivals(until time.Duration) float64
}

// Durations are random lengths of time: [Fixed], [Uniform], [Exponential], [LogNormal] or those of the program. They must be
// safe for concurrent use.
type Durations interface {
	// Duration returns the next length of time, by random numbers of r.
	Duration(r *rand.Rand) time.Duration
}

// Keys are the keys of requests. They must be safe for concurrent use.
type Keys interface {
	// Key returns the key of the next request, by random numbers of r.
	Key(r *rand.Rand) string
}

// Costs are the numbers of permits that requests take. They must be safe for concurrent use.
type Costs interface {
	// Cost returns the cost of the next request, at least 0, by random numbers of r.
	Cost(r *rand.Rand) int
}

// A Service is what a pipeline protects.
type Service struct {
	// Latency is how long a call takes, once it is served. If nil, calls take no time.
	Latency Durations
	// Capacity is how many calls are served at a time; the others wait for their turn. 0 means that there is no limit.
	Capacity int
	// QueueLimit is how many calls can wait; further calls fail at once. 0 means that there is no limit, -1 that no call can
	// wait.
	QueueLimit int
	// FailureRate is the share of calls that fail, from 0 to 1.
	FailureRate float64
	// StopsCanceled makes the service drop a call when its caller has given up. If false, the call keeps its place, as in
	// most services: work for those who have left is what keeps an overload going.
	StopsCanceled bool
	// Periods are times in which the service is different, such as an outage.
	Periods []Period
}

// A Period is a time in which a [Service] is different. Where several overlap, the last one in the list counts. A call has
// the latency and the failure rate of the instant at which the service begins to serve it.
type Period struct {
	// From is when the period begins, and To when it ends, after the beginning of the simulation. To is required, and later
	// than From.
	From, To time.Duration
	// FailureRate is the share of calls that fail, from 0 to 1: new(1.0) is an outage. If nil, that of the service applies.
	FailureRate *float64
	// Latency is how long a call takes. If nil, that of the service applies.
	Latency Durations
	// Capacity is how many calls are served at a time. 0 means as many as the service says.
	Capacity int
}

// Clients are what sends requests and reacts to the answers.
type Clients struct {
	// Timeout is how long a client waits for one execution. Then the client cancels the execution, which counts as a failure.
	// 0 means that it waits forever.
	Timeout time.Duration `yaml:"timeout,omitempty" doc:"How long a client waits for an answer before it gives up, which counts as a failure. It waits forever unless set."`
	// OnRejection is what a client does after a rejection by a limiter, a circuit breaker or another strategy.
	OnRejection Reaction `yaml:"on_rejection,omitempty" doc:"What a client does when it is rejected. It gives up unless set."`
	// OnFailure is what a client does after any other error.
	OnFailure Reaction `yaml:"on_failure,omitempty" doc:"What a client does after another error. It gives up unless set."`
}

// A Reaction is what a client does after an error. The zero Reaction gives up.
type Reaction struct {
	// MaxRetries is how often a client tries again. 0 means that it gives up.
	MaxRetries int `yaml:"max_retries,omitempty" reload:"least=0" doc:"How often the client tries again."`
	// Delay is how long a client waits before it tries again. 0 means that it tries at once. In a simulation the time stands
	// still meanwhile, so a request that only the time can help needs a Delay: without one, [Run] returns an error.
	Delay time.Duration `yaml:"delay,omitempty" doc:"How long it waits before it tries again. It tries at once unless set."`
	// Backoff is how the delays grow. The zero value is [retry.Constant].
	Backoff retry.Backoff `yaml:"backoff,omitempty" doc:"How the delays grow; constant unless set."`
	// MaxDelay bounds the delay, but not the time that RetryAfter asks for. 0 means that there is no limit.
	MaxDelay time.Duration `yaml:"max_delay,omitempty" doc:"The longest delay. There is no limit unless set."`
	// Jitter draws each delay at random, from 0 to what it is without Jitter. With RetryAfter, a quarter of the drawn delay is
	// added to the time that the error asks for. If false, delays are not random.
	Jitter bool `yaml:"jitter,omitempty" doc:"Each delay is a random part of itself."`
	// RetryAfter makes a client wait at least as long as the error asks for, see
	// [github.com/weir-go/weir/pipeline.RetryAfter]. If false, clients ignore that.
	RetryAfter bool `yaml:"retry_after,omitempty" doc:"The client waits as long as the rejection says, if it says so."`
}

// The defaults of a [Scenario], and its bounds.
const (
	defaultPoints      = 120
	defaultMaxInFlight = 100_000
	shortestInterval   = time.Millisecond
	mostPoints         = 100_000
	mostInstances      = 10_000
)

func (s Scenario) withDefaults() Scenario {
	if r := s.Load.Recording; r != nil && s.Load.For == 0 {
		s.Load.For = r.Length
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
	p.Include("Clients", s.Clients.problems())
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
		if l.Recording.requests == nil {
			p.Add("Load.Recording", nil, "must be made by ReadCSV, ReadAccessLog or RecordingOf")
		}
	}
	if l.For > input.Longest {
		p.Add("Load.For", l.For, "must be at most %v", input.Longest)
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
		if period.FailureRate != nil {
			share(p, path+"FailureRate", *period.FailureRate)
		}
		include(p, path+"Latency", period.Latency, false)
		p.AtLeast(path+"Capacity", period.Capacity, 0)
	}
}

// problems returns what is wrong with c, also for a file.
func (c Clients) problems() error {
	var p validate.Problems
	p.NotNegative("Timeout", c.Timeout)
	c.OnRejection.validate("OnRejection", &p)
	c.OnFailure.validate("OnFailure", &p)
	return p.Err("simulate")
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
	if own, ok := v.(kind); ok {
		includeKind(p, path, own)
	}
}

// A kind is a part of a scenario that this package has, such as [Fixed].
type kind interface {
	validate(p *validate.Problems)
}

// includeKind adds the problems of a kind at a path.
func includeKind(p *validate.Problems, path string, k kind) {
	var own validate.Problems
	k.validate(&own)
	p.Include(path, own.Err("simulate"))
}

// fromTo adds a problem if a period begins before 0, or does not end after its beginning. The path ends with a dot, or is
// empty.
func fromTo(p *validate.Problems, path string, from, to time.Duration) {
	p.NotNegative(path+"From", from)
	if to <= from {
		p.Add(path+"To", to, "must be more than {From}, which is %v", from)
	}
}

func share(p *validate.Problems, path string, v float64) {
	if !(v >= 0 && v <= 1) {
		p.Add(path, v, "must be from 0 to 1")
	}
}
