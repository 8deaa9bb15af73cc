package gatewayconfig

import (
	"context"
	"net/http"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/transport/weirhttp"
)

// NewLimits returns the policies of g, which must have its defaults, with the limiters of the file. The listener gets
// their decisions, and rejected what they answer in place of the handler; both can be nil. A handler is wrapped with the
// names that [Gateway.PoliciesOf] returns for its route.
func (g Gateway) NewLimits(b *reload.SectionBuilder, l pipeline.Listener, rejected weirhttp.Body) (*weirhttp.Limits, error) {
	o := &weirhttp.LimitsOptions{Name: PipelineName, Policies: make(map[string]weirhttp.Policy), Listener: l}
	for name, p := range g.Policies {
		made, err := p.new(b)
		if err != nil {
			return nil, err
		}
		if write := made.OnRejected; rejected != nil {
			made.OnRejected = func(w http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
				rejected(w, r, rejection)
				write(w, r, rejection)
			}
		}
		o.Policies[name] = made
	}
	return weirhttp.NewLimits(o)
}

// PoliciesOf returns the names of the policies that requests of a route pass, in the order in which they are asked.
func (g Gateway) PoliciesOf(r Route) []string {
	if r.Exempt {
		return r.Policies
	}
	return slices.Concat(g.Global, r.Policies)
}

// new returns the policy for weirhttp. p has its defaults.
func (p Policy) new(b *reload.SectionBuilder) (weirhttp.Policy, error) {
	info, _ := b.File.Limiter(p.Limiter)
	made := weirhttp.Policy{
		Headers:    *p.Headers,
		Shadow:     p.Shadow,
		FailOpen:   p.FailOpen,
		MaxWait:    p.MaxWait,
		Timeout:    p.Timeout,
		Status:     p.Status,
		OnRejected: p.Body.Write(),
	}
	made.Quota, made.Window = p.Quota, p.Window
	if p.Cost > 1 {
		made.Cost = func(*http.Request) int { return p.Cost }
	}
	if info.Partitioned {
		each, err := b.Partitioned(p.Limiter)
		made.Limit = weirhttp.ByRequest(requests{each})
		return made, err
	}
	l, err := b.Limiter(p.Limiter)
	made.Limit = weirhttp.Of(l)
	return made, err
}

// requests adapts a limiter that is partitioned by the context of a request to the request itself. Key functions find
// the request in the context with [weirhttp.RequestFrom].
type requests struct {
	limiter.Partitioned[context.Context]
}

// TryAcquire implements [limiter.Partitioned].
func (p requests) TryAcquire(ctx context.Context, _ *http.Request, n int) (limiter.Lease, error) {
	return p.Partitioned.TryAcquire(ctx, ctx, n)
}

// Acquire implements [limiter.Partitioned].
func (p requests) Acquire(ctx context.Context, _ *http.Request, n int) (limiter.Lease, error) {
	return p.Partitioned.Acquire(ctx, ctx, n)
}

// Limits returns the limits in force of the request's key, for the header fields.
func (p requests) Limits(r *http.Request) (rate.Limits, error) {
	if l, ok := p.Partitioned.(interface {
		Limits(ctx context.Context) (rate.Limits, error)
	}); ok {
		return l.Limits(r.Context())
	}
	return rate.Limits{}, errNoStatistics
}

// Statistics returns what is left of the request's key, for the header fields.
func (p requests) Statistics(r *http.Request) (limiter.Statistics, error) {
	s, ok := p.Partitioned.(interface {
		Statistics(ctx context.Context) (limiter.Statistics, error)
	})
	if !ok {
		return limiter.Statistics{}, errNoStatistics
	}
	return s.Statistics(r.Context())
}
