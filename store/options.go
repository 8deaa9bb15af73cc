package store

import (
	"cmp"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/textenum"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store/backend"
)

// Options are what all limiters of a [Store] have in common. The zero value has the defaults.
type Options struct {
	// CallTimeout bounds a round trip to the store, and the time that a caller waits for its answer, whatever the
	// backend's client does. The default is 500 ms.
	CallTimeout time.Duration `json:"call_timeout,omitempty" yaml:"call_timeout,omitempty"`
	// FailureThreshold is how many calls in a row must fail before the store counts as away. While it is away, limiters do
	// not call it and answer by their [OutagePolicy]. The default is 3.
	FailureThreshold int `json:"failure_threshold,omitempty" yaml:"failure_threshold,omitempty"`
	// ProbeInterval is the time between two probes of a store that is away. The default is 1 s. It varies by a fifth at
	// random, so that instances do not probe together.
	ProbeInterval time.Duration `json:"probe_interval,omitempty" yaml:"probe_interval,omitempty"`
	// RefreshInterval is the time after which a limiter in use loads its limits again, in case a notice of a change was
	// missed. The default is 10 s. It is up to a fifth shorter at random, so that instances do not load together.
	RefreshInterval time.Duration `json:"refresh_interval,omitempty" yaml:"refresh_interval,omitempty"`
	// NoListen, if true, opens no connection for the store's notices. Then an idle limiter learns of new limits after
	// RefreshInterval, callers that wait for a concurrency limiter poll, and a key whose rejection is remembered (see
	// LimiterOptions.CacheRejections) stays rejected for up to RefreshInterval after its limit was raised elsewhere. The
	// default is false.
	NoListen bool `json:"no_listen,omitempty" yaml:"no_listen,omitempty"`
	// OnEvent is called with each [Event], one after the other, on its own goroutine. No limiter waits for it. If nil,
	// events are dropped.
	OnEvent func(Event) `json:"-" yaml:"-"`
}

func (o Options) withDefaults() Options {
	o.CallTimeout = cmp.Or(o.CallTimeout, 500*time.Millisecond)
	o.FailureThreshold = cmp.Or(o.FailureThreshold, 3)
	o.ProbeInterval = cmp.Or(o.ProbeInterval, time.Second)
	o.RefreshInterval = cmp.Or(o.RefreshInterval, 10*time.Second)
	return o
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o stands for the defaults.
func (o *Options) Validate() error {
	o = cmp.Or(o, new(Options))
	var p validate.Problems
	p.NotNegative("CallTimeout", o.CallTimeout)
	p.AtLeast("FailureThreshold", o.FailureThreshold, 0)
	p.NotNegative("ProbeInterval", o.ProbeInterval)
	p.NotNegative("RefreshInterval", o.RefreshInterval)
	return p.Err("store")
}

// LimiterOptions configure how one limiter uses the store. The zero value has the defaults.
type LimiterOptions struct {
	// Outage is what the limiter does while the store is away. The default is FailClosed.
	Outage OutagePolicy `json:"outage,omitempty" yaml:"outage,omitempty"`
	// LocalShare is the part of the limit that this instance grants by itself while the store is away: more than 0,
	// at most 1. With n instances, 1/n keeps their sum at the limit. It is required with [FallBackLocally], and must
	// be 0 otherwise.
	LocalShare float64 `json:"local_share,omitempty" yaml:"local_share,omitempty"`
	// Block, if more than 1, is the largest number of permits that the instance borrows in one call, to grant them
	// without asking the store. The default, 0, borrows none. A block has about as many permits as the instance
	// needs within a second, and never more than a quarter of the limit. Where that is less than 4, none is borrowed.
	//
	// All instances together keep to the limit, but other instances cannot use permits that were borrowed until the
	// instance returns them, a second after it took them. A bucket accepts them only if nothing was taken since; otherwise
	// refills restore them as if they had been used. If the instance dies, refills or the end of the window restore them.
	//
	// Rejections are remembered as with CacheRejections. If the store's clock steps forward, the instance learns of it at
	// its next call. Until then, for at most a second, it grants from a block although the step has already restored
	// those permits. A lease from a block that [limiter.Lease.Adjust] has made larger cannot be refunded any more; see
	// [EventRefundLost]. Block must be 0 or 1 for concurrency.
	Block int `json:"block,omitempty" yaml:"block,omitempty"`
	// CacheRejections, if true, rejects a key that has no permits left without asking the store, until time has restored
	// some. What another instance gives back earlier, such as a refund, is not noticed before. CacheRejections must be false
	// for concurrency, where time restores no permits. The default is false.
	CacheRejections bool `json:"cache_rejections,omitempty" yaml:"cache_rejections,omitempty"`
	// Generation orders the limits that programs are deployed with. The first use of a limiter sets its limits for
	// all instances if its Generation is larger than that of the limits in force, and never if it is smaller. If both are
	// equal, the limiter sets its limits if it was made after the limits in force were set. It does not if its limits are
	// among the last that were replaced, because then it belongs to an older program. To go back to older limits, raise
	// Generation. The default is 0. The event [EventOverruled] reports a limiter whose limits are not in force.
	Generation int64 `json:"generation,omitempty" yaml:"generation,omitempty"`
	// LeaseTTL is, for concurrency, the time after which a lease ends unless it is renewed. An instance renews its leases
	// three times within LeaseTTL. If the instance dies, its permits become free after LeaseTTL at the latest. The default
	// is 30 s, the minimum 100 ms. LeaseTTL must be 0 for other kinds.
	LeaseTTL time.Duration `json:"lease_ttl,omitempty" yaml:"lease_ttl,omitempty" reload:"default=30s"`
}

// An OutagePolicy is how a limiter answers without the store: while the store is away, between [EventStoreLost] and
// [EventStoreRecovered], and when a single call fails. It is written "fail_closed", "fail_open" or "fall_back_locally"
// in configuration files.
type OutagePolicy uint8

// The outage policies.
const (
	// FailClosed rejects with [limiter.ReasonUnavailable], so the limit always holds. It is the zero value.
	FailClosed OutagePolicy = iota
	// FailOpen grants everything, so no caller is rejected because of the store. A request whose answer is late counts in
	// the store nevertheless, if it can be sent within Options.CallTimeout.
	FailOpen
	// FallBackLocally asks a limiter in the process that has LimiterOptions.LocalShare of the limit. The limiter starts
	// full. New limits change it in place, so permits that it has granted still count.
	FallBackLocally
)

var outages = textenum.Texts[OutagePolicy]{Package: "store", Type: "OutagePolicy", Texts: []string{
	FailClosed: "fail_closed", FailOpen: "fail_open", FallBackLocally: "fall_back_locally",
}}

// String returns the text form, or OutagePolicy(n) if o is unknown.
func (o OutagePolicy) String() string { return outages.String(o) }

// MarshalText implements [encoding.TextMarshaler].
func (o OutagePolicy) MarshalText() ([]byte, error) { return outages.Marshal(o) }

// UnmarshalText implements [encoding.TextUnmarshaler].
func (o *OutagePolicy) UnmarshalText(text []byte) error { return outages.Unmarshal(o, text) }

const (
	defaultLeaseTTL = 30 * time.Second
	minLeaseTTL     = 100 * time.Millisecond
	maxBlock        = 1 << 30
	// maxKeys bounds of how many keys a limiter remembers something. For keys beyond it, rejections are not cached, nothing is
	// borrowed, and there is no queue.
	maxKeys = 100_000
)

func (o LimiterOptions) validate(p *validate.Problems, kind rate.Kind) {
	if o.Outage > FallBackLocally {
		p.Add("Outage", o.Outage, "must be FailClosed, FailOpen or FallBackLocally")
	}
	switch {
	case o.Outage == FallBackLocally && !(o.LocalShare > 0 && o.LocalShare <= 1):
		p.Add("LocalShare", o.LocalShare, "must be more than 0 and at most 1")
	case o.Outage != FallBackLocally && o.LocalShare != 0:
		p.Add("LocalShare", o.LocalShare, "must be 0 unless {Outage} is %v", FallBackLocally)
	}
	if o.Block < 0 || o.Block > maxBlock {
		p.Add("Block", o.Block, "must be from 0 to %d", maxBlock)
	}
	if o.Generation < 0 || o.Generation > backend.MaxPermits {
		p.Add("Generation", o.Generation, "must be from 0 to %d", int64(backend.MaxPermits))
	}
	switch {
	case kind != rate.Concurrency && o.LeaseTTL != 0:
		p.Add("LeaseTTL", o.LeaseTTL, "must be 0 except for concurrency")
	case o.LeaseTTL != 0 && o.LeaseTTL < minLeaseTTL:
		p.Add("LeaseTTL", o.LeaseTTL, "must be 0 or at least %v", minLeaseTTL)
	}
	if kind == rate.Concurrency && o.Block > 1 {
		p.Add("Block", o.Block, "must be at most 1 for concurrency")
	}
	if kind == rate.Concurrency && o.CacheRejections {
		p.Add("CacheRejections", true, "must be false for concurrency")
	}
}

// Check returns the [weir.OptionsError] with which a Store refuses a limiter of that name and options, or nil. It is for code
// that reads a configuration file.
func Check(name string, options limiter.Options, shared *LimiterOptions) error {
	_, err := check(name, options, shared)
	return err
}

func check(name string, options limiter.Options, shared *LimiterOptions) (rate.Limits, error) {
	var p validate.Problems
	limits := storable(&p, options)
	checkName(&p, name)
	if shared != nil && limits.Kind != 0 {
		shared.validate(&p, limits.Kind)
	}
	return limits, p.Err("store")
}

// storable returns the limits of o and adds to p what is wrong with them, also what is wrong with them in a process: a file
// has all problems at once. A store computes in whole microseconds.
func storable(p *validate.Problems, o limiter.Options) rate.Limits {
	l := rate.Of(o)
	p.Include("", l.Validate())
	f := l.Fields()
	atMost := func(field string, n int) {
		if int64(n) > backend.MaxPermits {
			p.Add(field, n, "must be at most %d in a store", int64(backend.MaxPermits))
		}
	}
	atMost(f.Permits, l.Permits)
	atMost(f.Refill, l.Refill)
	switch step := l.Period / time.Duration(max(l.Segments, 1)); {
	case step.Microseconds() > backend.MaxPeriod:
		p.Add(f.Period, l.Period, "must be at most 100 years in a store")
	case step%time.Microsecond == 0:
	case l.Segments > 1:
		p.Add(f.Period, l.Period, "must be a whole number of microseconds for each of {SegmentsPerWindow} in a store")
	default:
		p.Add(f.Period, l.Period, "must be whole microseconds in a store")
	}
	return l
}

// maxName bounds the name of a limiter, which is part of every key.
const maxName = 200

// checkName allows only characters that do not collide with the text that backends put around names in keys and notices.
func checkName(p *validate.Problems, name string) {
	switch {
	case name == "" || len(name) > maxName:
		p.Add("name", name, "must have 1 to %d bytes", maxName)
	case strings.ContainsFunc(name, func(r rune) bool { return !inName(r) }):
		p.Add("name", name, "must be of ASCII letters, digits and any of ._-/")
	}
}

func inName(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("._-/", r)
}
