package store

import (
	"cmp"
	"errors"
	"fmt"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// Options are what all limiters of a [Store] have in common. The zero Options are the
// defaults.
type Options struct {
	// CallTimeout is how long a round trip to the store may take; 0: 500 ms. Whoever asks
	// waits no longer than that, whatever the store's client does, and whatever else has to
	// be asked before.
	CallTimeout time.Duration `json:"call_timeout,omitempty" yaml:"call_timeout,omitempty"`
	// FailureThreshold is how many calls in a row must fail until the store counts as away:
	// then it is not asked any more, and limiters answer as their [OutagePolicy] says. 0: 3.
	FailureThreshold int `json:"failure_threshold,omitempty" yaml:"failure_threshold,omitempty"`
	// ProbeInterval is how often a store that is away is looked for, by one call; 0: 1 s. A
	// fifth more or less at random keeps instances from looking all at once.
	ProbeInterval time.Duration `json:"probe_interval,omitempty" yaml:"probe_interval,omitempty"`
	// RefreshInterval is how often a limiter in use looks whether it was reconfigured
	// elsewhere, if it has not been told; 0: 10 s. Up to a fifth less at random keeps
	// instances from looking all at once.
	RefreshInterval time.Duration `json:"refresh_interval,omitempty" yaml:"refresh_interval,omitempty"`
	// NoListen: open no connection on which the store tells of what happens elsewhere. An
	// idle limiter then learns of new limits after RefreshInterval at the latest, one that
	// asks the store at once; and callers that wait for a concurrency limiter ask again and again.
	// A remembered rejection (see LimiterOptions.Block and CacheRejections) asks nothing: after the limit
	// was raised elsewhere, the key is still rejected until RefreshInterval is over.
	NoListen bool `json:"no_listen,omitempty" yaml:"no_listen,omitempty"`
	// OnEvent is told what an operator should know; see [EventKind]. It is called with one
	// event after the other, from a goroutine of its own: no limiter waits for it.
	OnEvent func(Event) `json:"-" yaml:"-"`
}

func (o Options) withDefaults() Options {
	o.CallTimeout = cmp.Or(o.CallTimeout, 500*time.Millisecond)
	o.FailureThreshold = cmp.Or(o.FailureThreshold, 3)
	o.ProbeInterval = cmp.Or(o.ProbeInterval, time.Second)
	o.RefreshInterval = cmp.Or(o.RefreshInterval, 10*time.Second)
	return o
}

// Validate returns every problem in one [limiter.ErrInvalidOptions], or nil.
func (o Options) Validate() error {
	var p problems
	p.notNegative("CallTimeout", o.CallTimeout)
	p.notNegative("ProbeInterval", o.ProbeInterval)
	p.notNegative("RefreshInterval", o.RefreshInterval)
	if o.FailureThreshold < 0 {
		p.add("FailureThreshold is %d, must be at least 0", o.FailureThreshold)
	}
	return p.err("store.Options")
}

// LimiterOptions say how one limiter deals with its state being elsewhere. The zero
// LimiterOptions, and a nil pointer to them, are the defaults.
type LimiterOptions struct {
	// Outage is what happens while the store is away; the zero Outage rejects.
	Outage OutagePolicy `json:"outage,omitempty" yaml:"outage,omitempty"`
	// LocalShare is, with [FallBackLocally], the part of the limit that this instance
	// gives out meanwhile: more than 0, at most 1. With so many instances as there usually
	// are, 1/n keeps the sum at the limit.
	LocalShare float64 `json:"local_share,omitempty" yaml:"local_share,omitempty"`
	// Block, if more than 1, is the largest number of permits that the instance takes at
	// once, to give them out without asking. It takes so many only as it needs them within a
	// second, and never more than a quarter of the limit. The limit holds in sum; but what
	// an instance has taken and does not use is missing to the others until it comes back.
	// It is returned a second after it was taken. A bucket takes that only if nobody has
	// taken any since; otherwise refills bring it back as if it had been used. An instance
	// that dies returns nothing: then refills, or the end of the window, bring it back.
	// Rejections are remembered as with CacheRejections; a raise of the limit elsewhere ends them as
	// soon as this instance learns of it, with Options.NoListen after Options.RefreshInterval at the latest. A step of the store's clock
	// forwards is not seen before the instance asks again: until then, a second at the most,
	// a block counts although time seems to have paid for it. Not for concurrency.
	Block int `json:"block,omitempty" yaml:"block,omitempty"`
	// CacheRejections: a key that has nothing left is rejected without asking until time
	// has brought something back. Since a refund may bring it back earlier, and the
	// instance would not know, a grant is then not given back when a chain is rejected by
	// a later limiter. What was granted to a caller whose context has ended is given back; other
	// instances notice that only once time has brought something back. Not for concurrency, where
	// time brings nothing back.
	CacheRejections bool `json:"cache_rejections,omitempty" yaml:"cache_rejections,omitempty"`
	// NoCoalescing: every call is a round trip of its own, also where many come at once.
	// Otherwise those that come while one is under way share the next. Of no account for
	// concurrency, where who asks after a release must not arrive before it. What a caller
	// that leaves in the middle was granted may be lost then until time brings it back.
	NoCoalescing bool `json:"no_coalescing,omitempty" yaml:"no_coalescing,omitempty"`
	// Generation orders the limits that programs are deployed with. The first use of a limiter sets
	// its limits for all instances if its Generation is larger than that of the limits in force, and
	// never if it is smaller. If it is the same, the first use sets its limits if the limiter was made
	// after the one that has set those in force, or after the Reconfigure that has, unless its limits are among the last that were replaced:
	// those are an older program's. Raise it to go back to older limits. At least 0.
	// The event [EventOverruled] reports a limiter whose limits are not in force.
	Generation int64 `json:"generation,omitempty" yaml:"generation,omitempty"`
	// LeaseTTL is, for concurrency, how long after an instance has died its permits are
	// free again; 0: 30 s; at least 100 ms. Leases are renewed three times in it.
	LeaseTTL time.Duration `json:"lease_ttl,omitempty" yaml:"lease_ttl,omitempty"`
}

const (
	defaultLeaseTTL = 30 * time.Second
	leastLeaseTTL   = 100 * time.Millisecond
	mostBlock       = 1 << 30
)

func (o LimiterOptions) validate(p *problems, kind backend.Kind) {
	if o.Outage > FallBackLocally {
		p.add("Outage is %d, must be FailClosed, FailOpen or FallBackLocally", o.Outage)
	}
	switch {
	case o.Outage == FallBackLocally && !(o.LocalShare > 0 && o.LocalShare <= 1):
		p.add("LocalShare is %v, must be more than 0 and at most 1", o.LocalShare)
	case o.Outage != FallBackLocally && o.LocalShare != 0:
		p.add("LocalShare is %v, must be 0 unless Outage is FallBackLocally", o.LocalShare)
	}
	if o.Block < 0 || o.Block > mostBlock {
		p.add("Block is %d, must be from 0 to %d", o.Block, mostBlock)
	}
	if o.Generation < 0 || o.Generation > backend.MaxPermits {
		p.add("Generation is %d, must be from 0 to %d", o.Generation, int64(backend.MaxPermits))
	}
	if kind == backend.KindConcurrency {
		if o.Block > 1 || o.CacheRejections {
			p.add("Block and CacheRejections must not be set for concurrency")
		}
		if o.LeaseTTL != 0 && o.LeaseTTL < leastLeaseTTL {
			p.add("LeaseTTL is %v, must be 0 or at least %v", o.LeaseTTL, leastLeaseTTL)
		}
	} else if o.LeaseTTL != 0 {
		p.add("LeaseTTL is %v, must be 0 but for concurrency", o.LeaseTTL)
	}
}

// queueing is the part of a limiter's options that stays in the instance.
type queueing struct {
	limit int
	order limiter.QueueOrder
}

// shared splits options of package limiter into what is in the store and what is not. It
// expects them to be valid, and adds what does not go for a shared limiter.
func shared(o any, p *problems) (backend.Limits, queueing) {
	switch o := o.(type) {
	case limiter.TokenBucketOptions:
		p.automatic(o.ManualReplenishment)
		return backend.Limits{
			Kind: backend.KindTokenBucket, Permits: p.permits("TokenLimit", o.TokenLimit), Refill: p.permits("TokensPerPeriod", o.TokensPerPeriod),
			Period: p.micros("ReplenishmentPeriod", o.ReplenishmentPeriod),
		}, queueing{o.QueueLimit, o.QueueOrder}
	case limiter.FixedWindowOptions:
		p.automatic(o.ManualReplenishment)
		return backend.Limits{
			Kind: backend.KindFixedWindow, Permits: p.permits("PermitLimit", o.PermitLimit), Period: p.micros("Window", o.Window),
		}, queueing{o.QueueLimit, o.QueueOrder}
	case limiter.SlidingWindowOptions:
		p.automatic(o.ManualReplenishment)
		if o.SegmentsPerWindow > backend.MaxSegments {
			p.add("SegmentsPerWindow is %d, must be at most %d in a store", o.SegmentsPerWindow, backend.MaxSegments)
		}
		return backend.Limits{
			Kind: backend.KindSlidingWindow, Permits: p.permits("PermitLimit", o.PermitLimit), Segments: int64(o.SegmentsPerWindow),
			Period: p.micros("Window/SegmentsPerWindow", o.Window/time.Duration(o.SegmentsPerWindow)),
		}, queueing{o.QueueLimit, o.QueueOrder}
	case limiter.ConcurrencyOptions:
		return backend.Limits{Kind: backend.KindConcurrency, Permits: p.permits("PermitLimit", o.PermitLimit)}, queueing{o.QueueLimit, o.QueueOrder}
	}
	p.add("options of type %T have no shared limiter", o)
	return backend.Limits{}, queueing{}
}

// optionsFrom turns limits back into the options of package limiter.
func optionsFrom(l backend.Limits, q queueing) any {
	period := time.Duration(l.Period) * time.Microsecond
	switch l.Kind {
	case backend.KindTokenBucket:
		return limiter.TokenBucketOptions{
			TokenLimit: toInt(l.Permits), TokensPerPeriod: toInt(l.Refill), ReplenishmentPeriod: period, QueueLimit: q.limit, QueueOrder: q.order,
		}
	case backend.KindFixedWindow:
		return limiter.FixedWindowOptions{PermitLimit: toInt(l.Permits), Window: period, QueueLimit: q.limit, QueueOrder: q.order}
	case backend.KindSlidingWindow:
		return limiter.SlidingWindowOptions{
			PermitLimit: toInt(l.Permits), Window: period * time.Duration(l.Segments), SegmentsPerWindow: toInt(l.Segments),
			QueueLimit: q.limit, QueueOrder: q.order,
		}
	default:
		return limiter.ConcurrencyOptions{PermitLimit: toInt(l.Permits), QueueLimit: q.limit, QueueOrder: q.order}
	}
}

// optionsOf returns the options in force; where another instance has made a limiter of another
// kind of this one, those that were set here.
func optionsOf[O options](c *core) O {
	q := *c.queueing.Load()
	if o, ok := optionsFrom(c.limits(), q).(O); ok {
		return o
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	return optionsFrom(c.wanted, q).(O)
}

// split validates options of package limiter and splits them.
func split(o any) (backend.Limits, queueing, error) {
	if v, ok := o.(interface{ Validate() error }); ok {
		if err := v.Validate(); err != nil {
			return backend.Limits{}, queueing{}, err
		}
	}
	var p problems
	l, q := shared(o, &p)
	return l, q, p.err(fmt.Sprintf("%T in a store", o))
}

// Check returns what a Store says of a limiter with that name and options, which are one of
// package limiter's; a nil how means the defaults. The error is a [limiter.ErrInvalidOptions].
// It is for whoever reads a configuration file.
func Check(name string, options any, how *LimiterOptions) error {
	_, _, err := check(name, options, how)
	return err
}

// check is split of options that a limiter is made with.
func check(name string, options any, how *LimiterOptions) (backend.Limits, queueing, error) {
	limits, q, err := split(options)
	var p problems
	p.name(name)
	if how != nil && limits.Kind != 0 {
		how.validate(&p, limits.Kind)
	}
	return limits, q, errors.Join(err, p.err("store.LimiterOptions of "+name))
}

// An options type is one of those of package limiter that a store has a limiter for.
type options interface {
	limiter.TokenBucketOptions | limiter.FixedWindowOptions | limiter.SlidingWindowOptions | limiter.ConcurrencyOptions
}
