package limiter

import (
	"cmp"
	"time"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/rate"
)

// QueueOrder says which waiter is served first when permits come back.
type QueueOrder = rate.QueueOrder

// The orders of a queue.
const (
	// OldestFirst serves waiters in the order in which they came, and no caller overtakes them. A newcomer that finds
	// no room is rejected. It is the zero value.
	OldestFirst = rate.OldestFirst
	// NewestFirst serves the newest waiter first: under overload, its caller is most likely still there. A newcomer
	// takes free permits before the queue, and if there is no room, it pushes out the oldest waiters.
	NewestFirst = rate.NewestFirst
	// Fair serves tenants in turn, by the permits that they get and their weights, so that a tenant with many waiters does not
	// delay another's; see [Tenant]. No caller overtakes waiters of its own tenant, or permits that the next waiter waits for.
	// If there is no room, the newest waiter of the tenant that waits for most permits for its weight gives way to a newcomer whose
	// tenant would wait for fewer, or has a higher priority. A [Concurrency] shares grants, not the time for which they are held.
	Fair = rate.Fair
)

// A Tenant is for whom a call waits in a queue with the order [Fair].
type Tenant = rate.Tenant

// Options are the options of a limiter of any kind: a [TokenBucketOptions], a [FixedWindowOptions], a [SlidingWindowOptions], a
// [CalendarOptions], a [ConcurrencyOptions], or the [rate.Limits] that they are.
type Options interface{ rate.Limited }

// OptionsOf returns the options that l are, as the type of their kind: a TokenBucketOptions, and so on; l if it has no kind.
func OptionsOf(l rate.Limits) Options {
	switch l.Kind {
	case rate.TokenBucket:
		return TokenBucketOptions{
			TokenLimit: l.Permits, TokensPerPeriod: l.Refill, ReplenishmentPeriod: l.Period,
			QueueLimit: l.QueueLimit, QueueOrder: l.QueueOrder, QueueLimitPerTenant: l.QueueLimitPerTenant,
		}
	case rate.FixedWindow:
		return FixedWindowOptions{
			PermitLimit: l.Permits, Window: l.Period,
			QueueLimit: l.QueueLimit, QueueOrder: l.QueueOrder, QueueLimitPerTenant: l.QueueLimitPerTenant,
		}
	case rate.SlidingWindow:
		return SlidingWindowOptions{
			PermitLimit: l.Permits, Window: l.Period, SegmentsPerWindow: l.Segments,
			QueueLimit: l.QueueLimit, QueueOrder: l.QueueOrder, QueueLimitPerTenant: l.QueueLimitPerTenant,
		}
	case rate.Concurrency:
		return ConcurrencyOptions{PermitLimit: l.Permits, QueueLimit: l.QueueLimit, QueueOrder: l.QueueOrder, QueueLimitPerTenant: l.QueueLimitPerTenant}
	case rate.Calendar:
		return CalendarOptions{PermitLimit: l.Permits, Every: l.Every, Zone: l.Zone, QueueLimit: l.QueueLimit, QueueOrder: l.QueueOrder, QueueLimitPerTenant: l.QueueLimitPerTenant}
	default:
		return l
	}
}

// Limits returns what o says.
func (o TokenBucketOptions) Limits() rate.Limits {
	return rate.Limits{
		Kind: rate.TokenBucket, Permits: o.TokenLimit, Refill: o.TokensPerPeriod, Period: o.ReplenishmentPeriod,
		QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant,
	}
}

// Limits returns what o says.
func (o FixedWindowOptions) Limits() rate.Limits {
	return rate.Limits{
		Kind: rate.FixedWindow, Permits: o.PermitLimit, Period: o.Window,
		QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant,
	}
}

// Limits returns what o says.
func (o SlidingWindowOptions) Limits() rate.Limits {
	return rate.Limits{
		Kind: rate.SlidingWindow, Permits: o.PermitLimit, Period: o.Window, Segments: o.SegmentsPerWindow,
		QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant,
	}
}

// Limits returns what o says.
func (o ConcurrencyOptions) Limits() rate.Limits {
	return rate.Limits{Kind: rate.Concurrency, Permits: o.PermitLimit, QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant}
}

// Limits returns what o says.
func (o CalendarOptions) Limits() rate.Limits {
	return rate.Limits{
		Kind: rate.Calendar, Permits: o.PermitLimit, Every: o.Every, Zone: o.Zone, QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant,
	}
}

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. Constructors and Reconfigure
// call it; a program that reads options from a file can call it earlier.
func (o TokenBucketOptions) Validate() error { return o.Limits().Validate() }

// Validate is that of [TokenBucketOptions.Validate].
func (o FixedWindowOptions) Validate() error { return o.Limits().Validate() }

// Validate is that of [TokenBucketOptions.Validate].
func (o SlidingWindowOptions) Validate() error { return o.Limits().Validate() }

// Validate is that of [TokenBucketOptions.Validate].
func (o ConcurrencyOptions) Validate() error { return o.Limits().Validate() }

// Validate is that of [TokenBucketOptions.Validate].
func (o CalendarOptions) Validate() error { return o.Limits().Validate() }

// limitsOf returns the limits of a kind that o says, or the error of options that are not of that kind or not valid.
func limitsOf(kind rate.Kind, o Options) (rate.Limits, error) {
	l := rate.Of(o)
	if err := l.Validate(); err != nil {
		return l, err
	}
	if l.Kind != kind {
		return l, optionsError("Kind", l.Kind.String(), "must stay %v on a live limiter", kind)
	}
	return l, nil
}

// CalendarOptions are the options of a [Calendar]. PermitLimit and Every are required.
type CalendarOptions struct {
	// PermitLimit is how many permits each window has; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// Every is what a window is: [rate.Day], [rate.Week], [rate.Month], [rate.Year], or what [rate.WeekFrom] or [rate.MonthFrom]
	// returns. In a file it is "day", "week", "month" or "year", or such as "week from sunday" or "month from 15".
	Every rate.Cycle `json:"every" yaml:"every"`
	// Zone is the name of the time zone, such as "Europe/Berlin". The default is UTC. On a machine without a time zone database,
	// other names need a program that imports time/tzdata.
	Zone string `json:"zone,omitempty" yaml:"zone,omitempty"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
}

// ConcurrencyOptions are the options of a [Concurrency] limiter. PermitLimit is required.
type ConcurrencyOptions struct {
	// PermitLimit is how many permits can be held at once; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
}

// FixedWindowOptions are the options of a [FixedWindow]. PermitLimit and Window are required.
type FixedWindowOptions struct {
	// PermitLimit is how many permits a window has; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// Window is how long a window is; more than 0.
	Window time.Duration `json:"window" yaml:"window"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
}

// SlidingWindowOptions are the options of a [SlidingWindow]. PermitLimit, Window and SegmentsPerWindow are required.
type SlidingWindowOptions struct {
	// PermitLimit is how many permits the window has, wherever it has slid to; at least 1.
	PermitLimit int `json:"permit_limit" yaml:"permit_limit"`
	// Window is how long a window is; more than 0, and divisible by SegmentsPerWindow.
	Window time.Duration `json:"window" yaml:"window"`
	// SegmentsPerWindow is the number of steps in which the window slides; at least 1 and at most 1,000. With 1, the
	// limiter is a fixed window. Each segment in which permits were taken uses 24 bytes until it leaves the window.
	SegmentsPerWindow int `json:"segments_per_window" yaml:"segments_per_window"`
	// QueueLimit is how many permits can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
}

// TokenBucketOptions are the options of a [TokenBucket]. TokenLimit, TokensPerPeriod and ReplenishmentPeriod are
// required.
type TokenBucketOptions struct {
	// TokenLimit is how many tokens the bucket holds, and so the largest burst; at least 1.
	TokenLimit int `json:"token_limit" yaml:"token_limit"`
	// TokensPerPeriod is how many tokens come in each period; at least 1. Tokens above TokenLimit are lost.
	TokensPerPeriod int `json:"tokens_per_period" yaml:"tokens_per_period"`
	// ReplenishmentPeriod is how long a period is; more than 0.
	ReplenishmentPeriod time.Duration `json:"replenishment_period" yaml:"replenishment_period"`
	// QueueLimit is how many tokens can be waited for. If 0, the limiter has no queue.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is OldestFirst.
	QueueOrder QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`
}

// PartitionedOptions are the options of a [PartitionedLimiter]. The zero value has the defaults: any number of
// partitions, each kept until it has been idle for 10 seconds.
type PartitionedOptions struct {
	// IdleTimeout is how long a partition is kept after its limiter has become idle; see IdleDuration of each. Then the limiter is
	// closed and the partition is forgotten, up to a quarter of IdleTimeout, or 100 ms, later. If 0, it is 10 seconds. It cannot be
	// turned off; set a long time to keep idle partitions.
	IdleTimeout time.Duration `json:"idle_timeout,omitempty" yaml:"idle_timeout,omitempty" reload:"default=10s"`
	// MaxPartitions bounds the number of partitions. If 0 or -1, there is no bound. Set it if keys come from outside the
	// program, such as from requests.
	//
	// A new key beyond the bound takes the place of a partition that is idle, if possible one that was not used again
	// lately. If all are in use, the new key is rejected, so a flood of keys never evicts a key that is being limited. The
	// new key looks at 512 partitions at most, so that its cost does not grow with their number, and finds an idle one if a
	// tenth of them are. If it finds none, new keys are rejected without a look for a millisecond at most.
	MaxPartitions int `json:"max_partitions,omitempty" yaml:"max_partitions,omitempty"`
	// ExpectedPartitions is how many partitions there are at the same time, more or less. It bounds nothing. If 0, 8 KiB
	// are set aside for locks that many processors do not wait for. Set it in a program with thousands of
	// PartitionedLimiters that have few partitions each. Reconfigure ignores it.
	ExpectedPartitions int `json:"-" yaml:"-"`
}

const defaultIdleTimeout = 10 * time.Second

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. A nil o stands for the defaults.
func (o *PartitionedOptions) Validate() error {
	var p validate.Problems
	cmp.Or(o, new(PartitionedOptions)).validate(&p)
	return p.Err("limiter")
}

// validate adds what is wrong with o to p.
func (o *PartitionedOptions) validate(p *validate.Problems) {
	p.NotNegative("IdleTimeout", o.IdleTimeout)
	p.AtLeast("MaxPartitions", o.MaxPartitions, -1)
	p.AtLeast("ExpectedPartitions", o.ExpectedPartitions, 0)
}

// optionsError returns a [weir.OptionsError] with one problem.
func optionsError(path string, value any, problem string, args ...any) error {
	var p validate.Problems
	p.Add(path, value, problem, args...)
	return p.Err("limiter")
}
