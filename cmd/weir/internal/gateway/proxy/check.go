package proxy

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirhttp"
)

// Check answers which limits and circuits a request would meet and what each would decide now, in the order in which the request meets
// them: the policies of its route, the pipeline of the route, the addresses of the upstream. Nothing is taken and nothing is sent.
func (h *Handler) Check(r *http.Request) (results []dashboard.CheckResult, err error) {
	x := &request{Context: r.Context()}
	err = h.pipeline.Execute(x, func(context.Context) error {
		if x.table.decide(&x.Decision, r.WithContext(x)); x.route == nil {
			return fmt.Errorf("%s %s: %w", r.Method, r.URL.Path, x.Reason)
		}
		inRequest(x.Request, func(ctx context.Context) {
			for _, name := range x.route.Policies {
				results = append(results, x.table.policies[name].check(ctx, name, x.Request))
			}
		})
		out := x.route.outgoing(x.Request)
		inRequest(out, func(ctx context.Context) {
			results = append(results, x.route.checkPipeline(ctx, out)...)
			results = append(results, x.route.checkUpstream(ctx)...)
		})
		return nil
	})
	return results, err
}

// check returns what the policy would decide.
func (p Policy) check(ctx context.Context, name string, r *http.Request) dashboard.CheckResult {
	result := dashboard.CheckResult{Policy: name, Limiter: p.Limiter, Matched: true}
	if p.Key != nil {
		result.Key = p.Key(r)
	}
	lease, err := p.Peek(ctx)
	switch {
	case errors.Is(err, errors.ErrUnsupported):
		result.Matched, result.Unasked, result.Reason = false, true, "it cannot be asked without taking a permit"
	case err != nil:
		result.Warning = err.Error()
	case lease.Acquired():
		result.Granted = true
	default:
		result.Reason = cmp.Or(lease.Reason(), limiter.ReasonNoPermit)
		result.RetryAfter, _ = lease.RetryAfter()
	}
	switch undecided := err != nil || result.Reason == limiter.ReasonUnavailable || result.Reason == limiter.ReasonClosed; {
	case p.Shadow && !result.Granted:
		result.Matched, result.Unasked, result.Granted = true, false, true
		result.Warning = "the policy is in shadow mode: it only reports, and lets the request through"
	case p.FailOpen && undecided && !result.Unasked:
		result.Granted, result.RetryAfter = true, 0
		result.Warning = "the limiter cannot decide, and the policy has fail_open: it lets the request through"
	}
	if left, known := lease.Remaining(); known {
		result.Remaining = &left
	}
	return result
}

// checkPipeline returns what the pipeline of the route would decide about the first attempt at a request, which is as it would be sent.
func (t *route) checkPipeline(ctx context.Context, r *http.Request) []dashboard.CheckResult {
	if t.Pipeline == nil {
		return nil
	}
	results := dashboard.CheckPipeline(ctx, t.Pipeline)
	for i := range results {
		c := &results[i]
		if l, ok := t.Limiters[c.Limiter]; ok {
			c.Limiter = l.Name
			if l.Key != nil {
				c.Key = l.Key(r)
			}
		}
		c.Policy = "pipeline " + c.Policy
	}
	return results
}

// checkUpstream returns what the circuits of the addresses would do. None of them rejects.
func (t *route) checkUpstream(ctx context.Context) (results []dashboard.CheckResult) {
	for address, p := range t.Upstream.Circuits() {
		if p == nil {
			continue
		}
		for _, c := range dashboard.CheckPipeline(ctx, p) {
			c.Limiter, c.Policy = "circuit of "+address, "upstream "+t.Upstream.Name()
			if c.Matched && !c.Granted {
				c.Granted, c.RetryAfter = true, 0
				c.Warning = "the address is asked only if no other one can be"
			}
			results = append(results, c)
		}
	}
	return results
}

// inRequest calls f with a context in which key functions find the request.
func inRequest(r *http.Request, f func(ctx context.Context)) {
	limits := weir.Must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: weirhttp.Policy{Limit: weirhttp.Of(limiter.NewUnlimited())}}))
	limits.Handler(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r.Context()) })).ServeHTTP(new(Decision), r)
}
