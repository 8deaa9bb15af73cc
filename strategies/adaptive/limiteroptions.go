package adaptive

import (
	"fmt"
	"math"
	"strings"
	"time"

	"github.com/failsafe-go/failsafe-go/adaptivelimiter"

	"github.com/weir-go/weir/limiter"
)

// LimiterOptions say within which bounds a [Limiter] looks for its limit, and how
// soon it changes its mind. The zero LimiterOptions are the defaults.
type LimiterOptions struct {
	// MinLimit is the lowest limit; 0 is 1.
	MinLimit int `json:"min_limit,omitempty" yaml:"min_limit,omitempty"`
	// MaxLimit is the highest limit; 0 is 200.
	MaxLimit int `json:"max_limit,omitempty" yaml:"max_limit,omitempty"`
	// InitialLimit is the limit to begin with; 0 is 20, or the nearest that is
	// between MinLimit and MaxLimit.
	InitialLimit int `json:"initial_limit,omitempty" yaml:"initial_limit,omitempty"`
	// MaxLimitFactor keeps the limit below so many times what has run at once
	// lately; 0 is 5. It is the room for a sudden burst.
	MaxLimitFactor float64 `json:"max_limit_factor,omitempty" yaml:"max_limit_factor,omitempty"`
	// MaxLimitWindow is for how long the most that ran at once is remembered for
	// MaxLimitFactor, where load goes up and down; 0: only since the last change.
	MaxLimitWindow time.Duration `json:"max_limit_window,omitempty" yaml:"max_limit_window,omitempty"`

	// QueueLimit is how many permits may be waited for; 0: nobody waits. Time in
	// the queue is not counted as an execution's.
	QueueLimit int `json:"queue_limit,omitempty" yaml:"queue_limit,omitempty"`
	// QueueOrder says who is served first.
	QueueOrder limiter.QueueOrder `json:"queue_order,omitempty" yaml:"queue_order,omitempty"`

	// MinWindow is the shortest time between two changes of the limit; 0 is 1 s.
	MinWindow time.Duration `json:"min_window,omitempty" yaml:"min_window,omitempty"`
	// MaxWindow is the longest, where executions are so long that two of the
	// shortest take more than MinWindow; 0 is 30 s, or MinWindow if that is longer.
	MaxWindow time.Duration `json:"max_window,omitempty" yaml:"max_window,omitempty"`
	// MinSamples is how many executions must have succeeded between two changes;
	// 0 is 50.
	MinSamples int `json:"min_samples,omitempty" yaml:"min_samples,omitempty"`
	// Quantile is which of their times stands for all; 0 is 0.9.
	Quantile float64 `json:"quantile,omitempty" yaml:"quantile,omitempty"`
	// BaselineAge is over how many such times "usually" is an average; 0 is 10.
	// More make the limiter slower to take a new time for the usual one.
	BaselineAge int `json:"baseline_age,omitempty" yaml:"baseline_age,omitempty"`
	// CorrelationWindow is over how many changes the limiter looks whether more at
	// once made anything quicker; 0 is 50.
	CorrelationWindow int `json:"correlation_window,omitempty" yaml:"correlation_window,omitempty"`

	// OnLimitChanged is called after each change of the limit, by whoever released
	// the lease that made the difference. Calls may overlap and come out of order.
	OnLimitChanged func(old, current int) `json:"-" yaml:"-"`
}

// withDefaults returns o with what a zero stands for.
func (o LimiterOptions) withDefaults() LimiterOptions {
	setDefault(&o.MinLimit, 1)
	setDefault(&o.MaxLimit, 200)
	setDefault(&o.InitialLimit, max(o.MinLimit, min(20, o.MaxLimit)))
	setDefault(&o.MaxLimitFactor, 5)
	setDefault(&o.MinWindow, time.Second)
	setDefault(&o.MaxWindow, max(30*time.Second, o.MinWindow))
	setDefault(&o.MinSamples, 50)
	setDefault(&o.Quantile, 0.9)
	setDefault(&o.BaselineAge, 10)
	setDefault(&o.CorrelationWindow, 50)
	return o
}

// setDefault sets what is zero.
func setDefault[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// highestLimit keeps the sums of permits far away from an overflow.
const highestLimit = math.MaxInt32

// Validate returns a [limiter.ErrInvalidOptions] that names every field that is
// wrong, or nil.
func (o LimiterOptions) Validate() error {
	o = o.withDefaults()
	var p problems
	p.unless(o.MinLimit >= 1, "MinLimit is %d, must be at least 1, or 0 for that", o.MinLimit)
	p.unless(o.MaxLimit >= o.MinLimit && o.MaxLimit <= highestLimit,
		"MaxLimit is %d, must be at least MinLimit, which is %d, and at most %d", o.MaxLimit, o.MinLimit, highestLimit)
	p.unless(o.InitialLimit >= o.MinLimit && o.InitialLimit <= o.MaxLimit,
		"InitialLimit is %d, must be between MinLimit and MaxLimit, which are %d and %d", o.InitialLimit, o.MinLimit, o.MaxLimit)
	p.unless(o.MaxLimitFactor >= 1 && !math.IsInf(o.MaxLimitFactor, 0),
		"MaxLimitFactor is %v, must be at least 1, or 0 for 5", o.MaxLimitFactor)
	p.unless(o.MaxLimitWindow >= 0, "MaxLimitWindow is %v, must be at least 0", o.MaxLimitWindow)
	p.unless(o.QueueLimit >= 0, "QueueLimit is %d, must be at least 0", o.QueueLimit)
	p.unless(o.QueueOrder <= limiter.NewestFirst, "QueueOrder is %v, must be OldestFirst or NewestFirst", o.QueueOrder)
	p.unless(o.MinWindow > 0, "MinWindow is %v, must be more than 0, or 0 for 1s", o.MinWindow)
	p.unless(o.MaxWindow >= o.MinWindow, "MaxWindow is %v, must be at least MinWindow, which is %v", o.MaxWindow, o.MinWindow)
	p.unless(o.MinSamples >= 1, "MinSamples is %d, must be at least 1, or 0 for 50", o.MinSamples)
	p.unless(o.Quantile > 0 && o.Quantile < 1, "Quantile is %v, must be between 0 and 1, or 0 for 0.9", o.Quantile)
	p.unless(o.BaselineAge >= 1, "BaselineAge is %d, must be at least 1, or 0 for 10", o.BaselineAge)
	p.unless(o.CorrelationWindow >= 2 && o.CorrelationWindow <= 1<<20,
		"CorrelationWindow is %d, must be between 2 and %d, or 0 for 50", o.CorrelationWindow, 1<<20)
	return p.err()
}

// engine makes what computes the limit. o has its defaults and is valid.
func (o LimiterOptions) engine() adaptivelimiter.AdaptiveLimiter[any] {
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

// permits are the options of the limiter that lends the permits.
func (o LimiterOptions) permits(limit int) limiter.ConcurrencyOptions {
	return limiter.ConcurrencyOptions{PermitLimit: limit, QueueLimit: o.QueueLimit, QueueOrder: o.QueueOrder}
}

// problems collects what is wrong with some options.
type problems []string

func (p *problems) unless(fine bool, format string, args ...any) {
	if !fine {
		*p = append(*p, fmt.Sprintf(format, args...))
	}
}

func (p *problems) err() error {
	if len(*p) == 0 {
		return nil
	}
	return fmt.Errorf("adaptive: %w: %s", limiter.ErrInvalidOptions, strings.Join(*p, "; "))
}
