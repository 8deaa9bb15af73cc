package simulate

import (
	"reflect"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/reload"
)

const (
	loadSection    = "load"
	serviceSection = "service"
	clientsSection = "clients"
)

// ParseScenario reads the load, the service and the clients of a [Scenario] from a file in YAML or JSON, such as
//
//	load:
//	  for: 10m
//	  open: {poisson: true, rate: {constant: 100}}
//	  keys: {zipf: {count: 1000, exponent: 1.1}}
//	service:
//	  latency: {exponential: {mean: 20ms}}
//	  capacity: 16
//	  periods: [{from: 3m, to: 5m, failure_rate: 1}]
//	clients:
//	  timeout: 2s
//	  on_rejection: {max_retries: 3, delay: 100ms, backoff: exponential, jitter: true, retry_after: true}
//
// Everything else of the Scenario is left at its zero value, and so is a section that the file does not have. The error is
// a [reload.FileError] with all problems of the file, each with its line and column. [ScenarioSchema] has all fields.
func ParseScenario(name string, data []byte) (Scenario, error) {
	f, err := reload.Parse(name, data, scenarioKinds())
	if err != nil {
		return Scenario{}, err
	}
	var s Scenario
	if l, ok := reload.SectionOf[loadFile](f, loadSection); ok {
		s.Load = l.load()
	}
	if v, ok := reload.SectionOf[serviceFile](f, serviceSection); ok {
		s.Service = v.service()
	}
	s.Clients, _ = reload.SectionOf[Clients](f, clientsSection)
	return s, nil
}

// ScenarioSchema returns the JSON schema (draft 2020-12) of the files that [ParseScenario] reads. Editors use it to
// complete and check a file.
func ScenarioSchema() ([]byte, error) { return scenarioKinds().Schema() }

// scenarioKinds have what a scenario file can have.
func scenarioKinds() *reload.Kinds {
	k := reload.NewKinds()
	k.OnlySections()
	reload.RegisterSection(k, loadSection, reload.Section[loadFile]{Doc: "The requests."})
	reload.RegisterSection(k, serviceSection, reload.Section[serviceFile]{
		Doc: "What the pipeline protects. Unless set, it answers at once and never fails.",
	})
	reload.RegisterSection(k, clientsSection, reload.Section[Clients]{
		Doc:   "What clients do after an error. Unless set, they give up.",
		Check: func(_ *reload.File, c Clients) error { return c.problems() },
	})
	return k
}

type loadFile struct {
	For    time.Duration `yaml:"for,omitempty" doc:"How long requests arrive. Required, except for a recording: there it is the length of the recording unless set."`
	Open   *openFile     `yaml:"open,omitempty" doc:"Requests that arrive however long the answers take, as from many independent users."`
	Closed *closedFile   `yaml:"closed,omitempty" doc:"Clients that wait for an answer before they send again, as workers of a pool do."`
	Keys   *keysFile     `yaml:"keys,omitempty" doc:"The keys of the requests, such as their users. All have the same key unless set."`
	Cost   *costsFile    `yaml:"cost,omitempty" doc:"How many permits a request takes, if the limiter asks for its cost; 1 unless set."`
}

// Validate checks what the types of the fields do not.
func (l loadFile) Validate() error {
	var p validate.Problems
	p.NotNegative("For", l.For)
	if l.Open != nil && l.Closed != nil {
		p.Add("", nil, "must have only one of {Open} and {Closed}")
	}
	return p.Err("simulate")
}

func (l loadFile) load() Load {
	made := Load{For: l.For, Keys: l.Keys.keys(), Cost: l.Cost.costs()}
	if o := l.Open; o != nil {
		made.Open = &Open{Rate: o.Rate.rate(), Poisson: o.Poisson}
	}
	if c := l.Closed; c != nil {
		made.Closed = &Closed{Clients: c.Clients, Think: c.Think.durations(), SameKey: c.SameKey}
	}
	return made
}

type openFile struct {
	Rate    rateFile `yaml:"rate" doc:"How many requests a second arrive, over time."`
	Poisson bool     `yaml:"poisson,omitempty" doc:"Requests arrive at random and independent of each other, as those of many users do. They are evenly spaced unless set."`
}

type closedFile struct {
	Clients int           `yaml:"clients" reload:"least=1" doc:"How many clients there are."`
	Think   durationsFile `yaml:"think" doc:"How long a client waits after an answer."`
	SameKey bool          `yaml:"same_key,omitempty" doc:"All requests of a client have the key that the client drew first."`
}

type serviceFile struct {
	Latency       *durationsFile `yaml:"latency,omitempty" doc:"How long a call takes, once it is served. It takes no time unless set."`
	Capacity      int            `yaml:"capacity,omitempty" reload:"least=0" doc:"How many calls are served at a time; the others wait for their turn. There is no limit unless set."`
	QueueLimit    int            `yaml:"queue_limit,omitempty" reload:"off,least=1" doc:"How many calls can wait; further ones fail at once. There is no limit unless set; with off, none can wait."`
	FailureRate   float64        `yaml:"failure_rate,omitempty" reload:"least=0,most=1" doc:"The share of calls that fail, from 0 to 1."`
	StopsCanceled bool           `yaml:"stops_canceled,omitempty" doc:"The service drops a call when its caller has given up. The call keeps its place unless set, as in most services."`
	Periods       []periodFile   `yaml:"periods,omitempty" doc:"Times in which the service is different, such as an outage. Where several overlap, the last one counts."`
}

func (s serviceFile) service() Service {
	made := Service{
		Latency: s.Latency.durations(), Capacity: s.Capacity, QueueLimit: s.QueueLimit, FailureRate: s.FailureRate,
		StopsCanceled: s.StopsCanceled,
	}
	for _, p := range s.Periods {
		made.Periods = append(made.Periods, Period{
			From: p.From, To: p.To, FailureRate: p.FailureRate, Latency: p.Latency.durations(), Capacity: p.Capacity,
		})
	}
	return made
}

type periodFile struct {
	From        time.Duration  `yaml:"from,omitempty" doc:"When the period begins, after the beginning of the simulation."`
	To          time.Duration  `yaml:"to" doc:"When the period ends, after the beginning of the simulation."`
	FailureRate *float64       `yaml:"failure_rate,omitempty" reload:"least=0,most=1" doc:"The share of calls that fail, from 0 to 1; 1 is an outage. It is that of the service unless set."`
	Latency     *durationsFile `yaml:"latency,omitempty" doc:"How long a call takes that begins in the period; that of the service unless set."`
	Capacity    int            `yaml:"capacity,omitempty" reload:"least=0" doc:"How many calls are served at a time; that of the service unless set."`
}

func (f periodFile) Validate() error {
	var p validate.Problems
	fromTo(&p, "", f.From, f.To)
	return p.Err("simulate")
}

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

// validateKinds returns the problems of the kinds that are set in a struct of pointers to kinds.
func validateKinds(all any) error {
	var p validate.Problems
	for field, v := range reflect.ValueOf(all).Fields() {
		if !field.IsExported() {
			continue
		}
		if k, ok := v.Interface().(kind); ok && !v.IsNil() {
			includeKind(&p, field.Name, k)
		}
	}
	return p.Err("simulate")
}

// kindOf returns the kind that is set in a struct of pointers to kinds, or otherwise.
func kindOf[T any](all any, otherwise T) T {
	for _, v := range reflect.ValueOf(all).Fields() {
		if v.Kind() == reflect.Pointer && !v.IsNil() {
			if k, ok := v.Elem().Interface().(T); ok {
				return k
			}
		}
	}
	return otherwise
}

func (r oneRate) Validate() error {
	var p validate.Problems
	p.Include("", validateKinds(r))
	if r.Constant != nil {
		positiveRate(&p, "Constant", *r.Constant)
	}
	if r.Steps != nil {
		includeKind(&p, "", Steps{Steps: r.Steps})
	}
	return p.Err("simulate")
}

func (r oneRate) rate() Rate {
	if r.Constant != nil {
		return ConstantRate{Rate: *r.Constant}
	}
	return kindOf[Rate](r, Steps{Steps: r.Steps})
}

func (r rateFile) Validate() error {
	if r.Sum != nil && len(r.Sum) == 0 {
		var p validate.Problems
		p.Add("Sum", nil, "must have at least one rate")
		return p.Err("simulate")
	}
	return r.oneRate.Validate()
}

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

type durationsFile struct {
	_           struct{}       `reload:"oneof=distribution"`
	Fixed       *time.Duration `yaml:"fixed,omitempty" doc:"Always the same time."`
	Exponential *Exponential   `yaml:"exponential,omitempty" doc:"An exponential distribution, which the formulas of queueing theory assume."`
	Uniform     *Uniform       `yaml:"uniform,omitempty" doc:"Each time from min to max is as likely as any other."`
	LogNormal   *LogNormal     `yaml:"log_normal,omitempty" doc:"A log-normal distribution, which the latencies of many services have: most are near the median, and a few are much longer."`
}

func (d durationsFile) Validate() error {
	var p validate.Problems
	p.Include("", validateKinds(d))
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
	case d.Fixed != nil:
		return Fixed{Time: *d.Fixed}
	}
	return kindOf[Durations](*d, nil)
}

type keysFile struct {
	_       struct{}     `reload:"oneof=keys"`
	Uniform *UniformKeys `yaml:"uniform,omitempty" doc:"Each key is as frequent as the others."`
	Zipf    *ZipfKeys    `yaml:"zipf,omitempty" doc:"A few keys have most of the requests, as users of many services do."`
	Abuser  *AbuserKeys  `yaml:"abuser,omitempty" doc:"One key has a share of the requests to itself, and the others share the rest evenly."`
}

func (k keysFile) Validate() error { return validateKinds(k) }

// keys returns the keys that are set, or nil if k is nil.
func (k *keysFile) keys() Keys {
	if k == nil {
		return nil
	}
	return kindOf[Keys](*k, nil)
}

type costsFile struct {
	_       struct{}     `reload:"oneof=cost"`
	Fixed   *int         `yaml:"fixed,omitempty" reload:"least=0" doc:"Each request takes as many permits."`
	Uniform *UniformCost `yaml:"uniform,omitempty" doc:"Each number from min to max is as likely as any other."`
	Shares  []CostShare  `yaml:"mixed,omitempty" doc:"A few kinds of requests, such as many that take one permit and a few that take a hundred."`
}

func (c costsFile) Validate() error {
	var p validate.Problems
	p.Include("", validateKinds(c))
	if c.Shares != nil {
		includeKind(&p, "", MixedCost{Shares: c.Shares})
	}
	return p.Err("simulate")
}

// costs returns the costs that are set, or nil if c is nil.
func (c *costsFile) costs() Costs {
	switch {
	case c == nil:
		return nil
	case c.Fixed != nil:
		return FixedCost{Permits: *c.Fixed}
	}
	return kindOf[Costs](*c, MixedCost{Shares: c.Shares})
}
