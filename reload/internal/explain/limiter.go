package explain

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/internal/durationtext"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
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
	case limiter.Options:
		return o.Limits().String()
	case adaptive.LimiterOptions:
		return explainAdaptive(o) + rate.QueueText(o.QueueLimit, o.QueueOrder)
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
