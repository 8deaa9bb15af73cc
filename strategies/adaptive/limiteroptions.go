package adaptive

import (
	"cmp"
	"context"
	"math"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/limiter"
)

// LimiterOptions say within which bounds a [Limiter] finds its limit, and how fast it changes it. The zero LimiterOptions
// are the defaults.
type LimiterOptions struct {
	// MinLimit is the lowest limit. The default is 1.
	MinLimit int `json:"min_limit,omitempty" yaml:"min_limit,omitempty" reload:"default=1"`
	// MaxLimit is the highest limit. The default is 200.
	MaxLimit int `json:"max_limit,omitempty" yaml:"max_limit,omitempty" reload:"default=200"`
	// InitialLimit is the first limit. The default is 20, or the nearest number between MinLimit and MaxLimit.
	InitialLimit int `json:"initial_limit,omitempty" yaml:"initial_limit,omitempty" reload:"default=20"`
	// MaxLimitFactor bounds the limit to this factor times the highest number of executions that ran at once recently.
	// The default is 5.
	MaxLimitFactor float64 `json:"max_limit_factor,omitempty" yaml:"max_limit_factor,omitempty" reload:"default=5"`
	// MaxLimitWindow is how long "recently" is for MaxLimitFactor. Set it if the load goes up and down. If 0, it is the
	// time since the last change of the limit.
	MaxLimitWindow time.Duration `json:"max_limit_window,omitempty" yaml:"max_limit_window,omitempty"`

	// QueueLimit is the number of permits that callers can wait for. If 0, there is no queue. Time in the queue does not
	// count as time of an execution.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says which waiter is served first. The default is limiter.OldestFirst.
	QueueOrder limiter.QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`
	// QueueLimitPerTenant is how many permits a tenant can wait for if QueueOrder is limiter.Fair. If 0, QueueLimit alone bounds it.
	QueueLimitPerTenant int `json:"queue_limit_per_tenant,omitempty" yaml:"queue_limit_per_tenant,omitempty"`

	// MinWindow is the shortest time between two changes of the limit. The default is 1 s.
	MinWindow time.Duration `json:"min_window,omitempty" yaml:"min_window,omitempty" reload:"default=1s"`
	// MaxWindow is the longest time between two changes, if twice the time of the shortest execution is more than
	// MinWindow. The default is 30 s, or MinWindow if that is longer.
	MaxWindow time.Duration `json:"max_window,omitempty" yaml:"max_window,omitempty" reload:"default=30s"`
	// MinSamples is the number of executions that must have succeeded between two changes. The default is 50.
	MinSamples int `json:"min_samples,omitempty" yaml:"min_samples,omitempty" reload:"default=50"`
	// Quantile is the quantile of the times of these executions that the limiter compares with the usual time, from 0 to
	// 1. The default is 0.9.
	Quantile float64 `json:"quantile,omitempty" yaml:"quantile,omitempty" reload:"default=0.9"`
	// BaselineAge is the number of quantiles whose average is the usual time. With a higher number it takes longer until a
	// new time is the usual one. The default is 10.
	BaselineAge int `json:"baseline_age,omitempty" yaml:"baseline_age,omitempty" reload:"default=10"`
	// CorrelationWindow is the number of changes over which the limiter compares the number of executions at once with
	// the throughput. The default is 50.
	CorrelationWindow int `json:"correlation_window,omitempty" yaml:"correlation_window,omitempty" reload:"default=50"`

	// OnLimitChanged is called after each change of the limit, in the goroutine that released the lease which caused it, with the
	// context by which that lease was acquired. Calls can overlap and come out of order.
	OnLimitChanged func(ctx context.Context, c LimitChange) `json:"-" yaml:"-"`
}

// A LimitChange is a change of the limit of a [Limiter], as [LimiterOptions.OnLimitChanged] gets it.
type LimitChange struct{ Old, Current int }

// withDefaults returns o with the defaults filled in. A nil o stands for the zero LimiterOptions.
func (o *LimiterOptions) withDefaults() LimiterOptions {
	full := *cmp.Or(o, new(LimiterOptions))
	full.MinLimit = cmp.Or(full.MinLimit, 1)
	full.MaxLimit = cmp.Or(full.MaxLimit, 200)
	full.InitialLimit = cmp.Or(full.InitialLimit, max(full.MinLimit, min(20, full.MaxLimit)))
	full.MaxLimitFactor = cmp.Or(full.MaxLimitFactor, 5)
	full.MinWindow = cmp.Or(full.MinWindow, time.Second)
	full.MaxWindow = cmp.Or(full.MaxWindow, max(30*time.Second, full.MinWindow))
	full.MinSamples = cmp.Or(full.MinSamples, 50)
	full.Quantile = cmp.Or(full.Quantile, 0.9)
	full.BaselineAge = cmp.Or(full.BaselineAge, 10)
	full.CorrelationWindow = cmp.Or(full.CorrelationWindow, 50)
	return full
}

// highestLimit is low enough that sums of permits cannot overflow.
const highestLimit = math.MaxInt32

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil. [NewLimiter] calls it; a program
// that reads options from a file can call it earlier.
func (o *LimiterOptions) Validate() error {
	f := o.withDefaults()
	var p validate.Problems
	p.AtLeast("MinLimit", f.MinLimit, 1)
	if f.MaxLimit < f.MinLimit || f.MaxLimit > highestLimit {
		p.Add("MaxLimit", f.MaxLimit, "must be at least {MinLimit}, which is %d, and at most %d", f.MinLimit, highestLimit)
	}
	if f.InitialLimit < f.MinLimit || f.InitialLimit > f.MaxLimit {
		p.Add("InitialLimit", f.InitialLimit, "must be between {MinLimit} and {MaxLimit}, which are %d and %d", f.MinLimit, f.MaxLimit)
	}
	if !(f.MaxLimitFactor >= 1) || math.IsInf(f.MaxLimitFactor, 0) { // also if it is NaN
		p.Add("MaxLimitFactor", f.MaxLimitFactor, "must be at least 1")
	}
	p.NotNegative("MaxLimitWindow", f.MaxLimitWindow)
	p.AtLeast("QueueLimit", f.QueueLimit, 0)
	if f.QueueOrder > limiter.Fair {
		p.Add("QueueOrder", f.QueueOrder, "must be OldestFirst, NewestFirst or Fair")
	}
	p.AtLeast("QueueLimitPerTenant", f.QueueLimitPerTenant, 0)
	if f.QueueLimitPerTenant > 0 && f.QueueOrder != limiter.Fair {
		p.Add("QueueLimitPerTenant", f.QueueLimitPerTenant, "must be 0 unless {QueueOrder} is Fair")
	}
	p.Positive("MinWindow", f.MinWindow)
	if f.MaxWindow < f.MinWindow {
		p.Add("MaxWindow", f.MaxWindow, "must be at least {MinWindow}, which is %v", f.MinWindow)
	}
	p.AtLeast("MinSamples", f.MinSamples, 1)
	if !(f.Quantile > 0 && f.Quantile < 1) {
		p.Add("Quantile", f.Quantile, "must be between 0 and 1")
	}
	p.AtLeast("BaselineAge", f.BaselineAge, 1)
	if f.CorrelationWindow < 2 || f.CorrelationWindow > 1<<20 {
		p.Add("CorrelationWindow", f.CorrelationWindow, "must be between 2 and %d", 1<<20)
	}
	return p.Err("adaptive")
}

// engine makes the limiter of failsafe-go that computes the limit. o is valid, with the defaults filled in.
func (o *LimiterOptions) engine() adaptivelimiter.AdaptiveLimiter[any] {
	return adaptivelimiter.NewBuilder[any]().
		WithLimits(uint(o.MinLimit), uint(o.MaxLimit), uint(o.InitialLimit)).
		WithMaxLimitFactor(o.MaxLimitFactor).
		WithMaxLimitStabilizationWindow(o.MaxLimitWindow).
		WithRecentWindow(o.MinWindow, o.MaxWindow, uint(o.MinSamples)).
		WithRecentQuantile(o.Quantile).
		WithBaselineWindow(uint(o.BaselineAge)).
		WithCorrelationWindow(uint(o.CorrelationWindow)).
		Build()
}

// permits returns the options of the limiter that has the permits.
func (o *LimiterOptions) permits(limit int) limiter.ConcurrencyOptions {
	return limiter.ConcurrencyOptions{PermitLimit: limit, QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder, QueueLimitPerTenant: o.QueueLimitPerTenant}
}
