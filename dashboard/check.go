package dashboard

import (
	"cmp"
	"context"
	"errors"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// A CheckResult says what one limit would decide about a request now. It took no permit and counted nothing.
type CheckResult struct {
	Policy  string `json:"policy,omitempty"` // the name of the policy, or what else the limit is part of
	Limiter string `json:"limiter"`          // the name of the limiter
	// Key is the key of the request in a partitioned limiter. Without [Options.ShowKeys] the answer has its hash.
	Key string `json:"key,omitempty"`
	// Matched reports whether the limit applies to the request. If false, Reason says why not, and the fields below Reason
	// are zero.
	Matched bool `json:"matched"`
	// Unasked reports whether the limit was not asked, although it may apply; Matched is then false. What would happen to
	// the request is then not known.
	Unasked bool `json:"not_asked,omitempty"`
	// Reason is why the limit does not apply or, if it applies, why it would reject.
	Reason     string        `json:"reason,omitempty"`
	Granted    bool          `json:"granted"`               // the request would be let through now
	RetryAfter time.Duration `json:"retry_after,omitempty"` // in JSON in ns; 0: not rejected, or not known
	Remaining  *int64        `json:"remaining,omitempty"`   // the permits that would be left; nil: not known
	// Warning says what the answer cannot be relied on for, such as a store that was not available.
	Warning string `json:"warning,omitempty"`
}

// CheckPipeline returns what the limiters and circuits of a pipeline would decide about an execution with that context
// now, the outermost first, for [Options.Check]. The pipelines that p embeds are checked in their places, each once. Policy
// is the name of the pipeline, and Limiter the source of the strategy, such as "orders/RateLimiter" or
// "circuit orders/CircuitBreaker".
//
// A strategy is asked if it is a circuit breaker or has a method Peek, as those of the packages ratelimit and adaptive have.
// Nothing is taken or counted. A limiter in a store is asked there. CheckPipeline does not know what the other strategies
// make of a rejection: a fallback can replace it, and a retry can try again.
func CheckPipeline(ctx context.Context, p *pipeline.Pipeline) []CheckResult {
	return checkStrategies(ctx, p, map[*pipeline.Pipeline]bool{})
}

// A peeker is a strategy that can say what its limiter would answer.
type peeker interface {
	Peek(ctx context.Context) (limiter.Lease, error)
}

func checkStrategies(ctx context.Context, p *pipeline.Pipeline, seen map[*pipeline.Pipeline]bool) (all []CheckResult) {
	if seen[p] {
		return nil
	}
	seen[p] = true
	for source, s := range p.Strategies() {
		switch s := s.(type) {
		case interface{ Pipeline() *pipeline.Pipeline }:
			all = append(all, checkStrategies(ctx, s.Pipeline(), seen)...)
		case *circuitbreaker.Strategy:
			all = append(all, checkCircuit(source, s))
		case peeker:
			all = append(all, checkStrategy(ctx, source, s))
		}
	}
	return all
}

// checkStrategy asks the limiter of a strategy.
func checkStrategy(ctx context.Context, source pipeline.Source, s peeker) CheckResult {
	result := CheckResult{Limiter: source.String(), Policy: source.Pipeline, Matched: true}
	lease, err := s.Peek(ctx)
	limiting, _ := s.(*ratelimit.Strategy)
	if limiting == nil || err == nil && lease.Acquired() {
		return result.with(lease, err, false)
	}
	queue := false
	if err == nil {
		options, _ := limiting.Describe()
		limits, ok := options.(ratelimit.Description).Limits.(limiter.Options)
		queue = ok && limits.Limits().QueueLimit > 0
	}
	result = result.with(lease, err, queue)
	if limiting.Options().Shadow {
		return result.shadowed()
	}
	return result
}

// shadowed returns the result of a strategy in shadow mode.
func (r CheckResult) shadowed() CheckResult {
	r.Matched, r.Unasked, r.Granted, r.RetryAfter = true, false, true, 0
	r.Warning = "the strategy is in shadow mode: it only reports, and lets the execution go on"
	return r
}

// onlyReports reports whether the strategies of p that ask the limiter are in shadow mode.
func onlyReports(p *pipeline.Pipeline, info registry.LimiterInfo) (shadow bool) {
	for _, s := range p.Strategies() {
		s, ok := s.(*ratelimit.Strategy)
		if !ok || s.Limiter() != info.Limiter && (s.Limiter() != nil || !info.Partitioned) {
			continue
		}
		if shadow = s.Options().Shadow; !shadow {
			return false
		}
	}
	return shadow
}

// checkCircuit returns what a circuit would do.
func checkCircuit(source pipeline.Source, c *circuitbreaker.Strategy) CheckResult {
	st := c.Statistics()
	result := CheckResult{Limiter: "circuit " + source.String(), Matched: true, Granted: true, Policy: source.Pipeline}
	switch st.State {
	case circuitbreaker.Isolated:
		result.Granted, result.Reason = false, "the circuit is isolated"
	case circuitbreaker.Open:
		result.Granted, result.Reason, result.RetryAfter = false, "the circuit is open", st.RetryAfter
	case circuitbreaker.HalfOpen:
		result.Reason = "the circuit is half open: the next call tries whether it can be closed"
		if st.RetryAfter > 0 {
			result.Granted, result.Reason, result.RetryAfter = false, "the circuit is half open, and is tried by other calls", st.RetryAfter
		}
	}
	return result
}

// with returns the result with what Peek has returned. queue reports whether the limiter is known to have one.
func (r CheckResult) with(lease limiter.Lease, err error, queue bool) CheckResult {
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		return r.unasked("it cannot be asked without taking a permit")
	case err != nil:
		r.Reason = errorText(err)
		r.Warning = "the limiter returned an error, as a call would get it"
		return r
	}
	r.Granted = lease.Acquired()
	if !r.Granted {
		r.Reason = cmp.Or(lease.Reason(), limiter.ReasonNoPermit)
		if queue && lease.Reason() != limiter.ReasonClosed {
			r.Reason += "; a call that waits can join the queue"
		}
		r.RetryAfter, _ = lease.RetryAfter()
	}
	if left, ok := lease.Remaining(); ok {
		r.Remaining = new(left)
	}
	if outage, ok := store.OutageKey.From(lease); ok {
		r.Warning = "the store could not be asked, this is what the policy for outages decides: " + errorText(outage)
	}
	return r
}

// unasked returns the result of a limit that was not asked.
func (r CheckResult) unasked(reason string) CheckResult {
	r.Matched, r.Unasked, r.Reason = false, true, reason
	return r
}
