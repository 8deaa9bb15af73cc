package explain

import (
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/adaptive"
)

func (e *explainer) rateLimiter(p *model.Pipeline, l *model.Limiter, o model.RateLimiterOptions) string {
	words := "takes a permit"
	if o.Permits != "" {
		words = "takes as many permits as " + o.Permits + " says"
	}
	return words + when(o.Shadow, " if it can, and goes on if not (shadow),") + " of " + e.limiter(p, l) +
		when(o.Handle != "", "; %s reports what a failure is", document.Name(o.Handle))
}

// limiter describes the limiter of a strategy of p.
func (e *explainer) limiter(p *model.Pipeline, l *model.Limiter) string {
	if l.Name == "" {
		return "its own " + e.limits(p, l)
	}
	return fmt.Sprintf("%s%s (%s)", document.Name(l.Name), e.sharedWith(l, p), e.limits(p, l))
}

// limits describes the limits of l and its store.
func (e *explainer) limits(p *model.Pipeline, l *model.Limiter) string {
	return e.limitsAlone(p, l) + explainStore(l.Store)
}

// limitsAlone describes the limits of l.
func (e *explainer) limitsAlone(p *model.Pipeline, l *model.Limiter) string {
	switch o := l.Options.(type) {
	case limiter.TokenBucketOptions:
		return fmt.Sprintf("token bucket: bursts of %d, then %s", o.TokenLimit, rate(o.TokensPerPeriod, o.ReplenishmentPeriod)) +
			queue(o.QueueLimit, o.QueueOrder, o.ManualReplenishment)
	case limiter.FixedWindowOptions:
		return fmt.Sprintf("fixed window: %s", rate(o.PermitLimit, o.Window)) +
			queue(o.QueueLimit, o.QueueOrder, o.ManualReplenishment)
	case limiter.SlidingWindowOptions:
		step := o.Window / time.Duration(o.SegmentsPerWindow)
		return fmt.Sprintf("sliding window: %d in any %s, in steps of %s", o.PermitLimit, durationtext.Of(o.Window), durationtext.Of(step)) +
			queue(o.QueueLimit, o.QueueOrder, o.ManualReplenishment)
	case limiter.ConcurrencyOptions:
		return fmt.Sprintf("concurrency limiter: %d at once", o.PermitLimit) + queue(o.QueueLimit, o.QueueOrder, false)
	case adaptive.LimiterOptions:
		return explainAdaptive(o) + queue(o.QueueLimit, o.QueueOrder, false)
	case adaptive.ThrottlerOptions:
		return explainThrottler(o)
	case model.PartitionedOptions:
		return fmt.Sprintf("limiter for each %s, a %s", o.Key, e.limitsAlone(p, l.Each)) + partitions(o.PartitionedOptions)
	case nil:
		if l.Kind == "chain" {
			return e.chain(p, l)
		}
	case struct{}:
		if l.Kind == "unlimited" {
			return "unlimited limiter: it only counts"
		}
	}
	return explainOwn(l.Kind, l.Options)
}

func explainAdaptive(o adaptive.LimiterOptions) string {
	// Only options whose defaults depend on each other are passed on: others can make a limiter that needs much memory.
	l, err := adaptive.NewLimiter(&adaptive.LimiterOptions{MinLimit: o.MinLimit, MaxLimit: o.MaxLimit, InitialLimit: o.InitialLimit})
	if err == nil { // Parse has refused options that cause an error
		o = l.Options()
	}
	return fmt.Sprintf("adaptive limiter: %d to %d at once, %d at first", o.MinLimit, o.MaxLimit, o.InitialLimit)
}

func explainThrottler(o adaptive.ThrottlerOptions) string {
	if t, err := adaptive.NewThrottler(&o); err == nil { // Parse has refused options that cause an error
		o = t.Options()
	}
	return fmt.Sprintf("throttler: it rejects up to %s while more than %s of at least %d in %s fail",
		percent(o.MaxRejectionRate), percent(o.FailureRate), max(o.MinExecutions, 1), durationtext.Of(o.Period))
}

func (e *explainer) chain(p *model.Pipeline, l *model.Limiter) string {
	var members []string
	for _, m := range l.Members {
		members = append(members, e.limiter(p, m))
	}
	return "chain: " + strings.Join(members, " and then ")
}

// queue describes the queue of a limiter, and manual replenishment.
func queue(limit int, order limiter.QueueOrder, manual bool) string {
	words := "; no queue"
	if limit > 0 {
		words = fmt.Sprintf("; up to %d wait", limit) + when(order == limiter.NewestFirst, ", the newest first")
	}
	return words + when(manual, "; the program replenishes it")
}

func partitions(o limiter.PartitionedOptions) string {
	return when(o.MaxPartitions > 0, "; up to %d of them", o.MaxPartitions) +
		when(o.IdleTimeout > 0, "; forgotten when idle for %s", durationtext.Of(o.IdleTimeout))
}

// explainStore describes the store of a limiter.
func explainStore(m *model.Store) string {
	if m == nil {
		return ""
	}
	outage := "rejects"
	switch m.Outage {
	case store.FailOpen:
		outage = "grants everything"
	case store.FallBackLocally:
		outage = percent(m.LocalShare) + " of the limit in the process"
	}
	return "; in the store " + m.Name + ", " + outage + " while the store is unavailable" +
		when(m.Block > 1, ", takes up to %d permits at once", m.Block) +
		when(m.CacheRejections, ", remembers rejections") +
		when(m.NoCoalescing, ", asks for each call alone") +
		when(m.Generation > 0, ", generation %d", m.Generation) +
		when(m.LeaseTTL > 0, ", leases of an instance that has died end after %s", durationtext.Of(m.LeaseTTL))
}

// units are the units of rates.
var units = []struct {
	length time.Duration
	name   string
}{{time.Second, "a second"}, {time.Minute, "a minute"}, {time.Hour, "an hour"}}

// rate says how many permits there are in a period, and in a unit of time if that is a whole number.
func rate(n int, period time.Duration) string {
	for _, u := range units {
		if period == u.length {
			return fmt.Sprintf("%d %s", n, u.name)
		}
	}
	words := fmt.Sprintf("%d every %s", n, durationtext.Of(period))
	for _, u := range units {
		if perUnit, ok := times(n, u.length, period); ok {
			return words + fmt.Sprintf(" (%d %s)", perUnit, u.name)
		}
	}
	return words
}

// times returns n × unit / period. ok is false if that is no whole number or overflows.
func times(n int, unit, period time.Duration) (int64, bool) {
	product := int64(n) * int64(unit)
	if product/int64(unit) != int64(n) || product%int64(period) != 0 {
		return 0, false
	}
	return product / int64(period), true
}
