package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/weir-go/weir/dashboard"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/gateway/proxy"
	"github.com/weir-go/weir/cmd/weir/internal/gateway/upstream"
)

// check answers which limits and circuits a request would meet and what each would decide now, in the order in which the
// request meets them: the policies of its route, the pipeline of the route, the addresses of the upstream.
func check(h *proxy.Handler, r *http.Request) ([]dashboard.CheckResult, error) {
	var behind []dashboard.CheckResult
	route, all, err := h.Check(r, func(ctx context.Context, route proxy.Route) {
		behind = append(checkPipeline(ctx, route), checkUpstream(ctx, route.Upstream)...)
	})
	if err != nil {
		return nil, err
	}
	if route == "" {
		return nil, fmt.Errorf("no route matches %s %s", r.Method, r.URL.Path)
	}
	results := make([]dashboard.CheckResult, 0, len(all)+len(behind))
	for _, c := range all {
		results = append(results, policyResult(c))
	}
	return append(results, behind...), nil
}

// policyResult returns what a policy would decide.
func policyResult(c proxy.Checked) dashboard.CheckResult {
	result := dashboard.CheckResult{Policy: c.Name, Limiter: c.Limiter, Key: c.Key, Matched: true}
	switch {
	case errors.Is(c.Err, errors.ErrUnsupported):
		result.Matched, result.Unasked, result.Reason = false, true, "it cannot be asked without taking a permit"
	case c.Err != nil:
		result.Warning = c.Err.Error()
	case c.Lease.Acquired():
		result.Granted = true
	default:
		result.Reason = cmp.Or(c.Lease.Reason(), limiter.ReasonNoPermit)
		result.RetryAfter, _ = c.Lease.RetryAfter()
	}
	if c.Shadow && !result.Granted {
		result.Matched, result.Unasked, result.Granted = true, false, true
		result.Warning = "the policy is in shadow mode: it only reports, and lets the request through"
	}
	if c.FailOpen && result.Matched && !result.Granted && (c.Err != nil || result.Reason == limiter.ReasonUnavailable || result.Reason == limiter.ReasonClosed) {
		result.Granted, result.RetryAfter = true, 0
		result.Warning = "the limiter cannot decide, and the policy has fail_open: it lets the request through"
	}
	if left, known := c.Lease.Remaining(); known {
		result.Remaining = &left
	}
	return result
}

// checkPipeline returns what the pipeline of a route would decide about the first attempt at a request. The context is that
// of [proxy.Handler.Check].
func checkPipeline(ctx context.Context, route proxy.Route) []dashboard.CheckResult {
	if route.Pipeline == nil {
		return nil
	}
	results := dashboard.CheckPipeline(ctx, route.Pipeline)
	for i := range results {
		r := &results[i]
		if l, ok := route.Limiters[r.Limiter]; ok {
			r.Limiter = l.Name
			if l.Key != nil {
				r.Key = l.Key(weirhttp.RequestFrom(ctx))
			}
		}
		r.Policy = "pipeline " + r.Policy
	}
	return results
}

// checkUpstream returns what the circuits of the addresses would do. None of them rejects.
func checkUpstream(ctx context.Context, u *upstream.Upstream) (results []dashboard.CheckResult) {
	for address, p := range u.Circuits() {
		if p == nil {
			continue
		}
		for _, c := range dashboard.CheckPipeline(ctx, p) {
			c.Limiter, c.Policy = "circuit of "+address, "upstream "+u.Name()
			if c.Matched && !c.Granted {
				c.Granted, c.RetryAfter = true, 0
				c.Warning = "the address is asked only if no other one can be"
			}
			results = append(results, c)
		}
	}
	return results
}
