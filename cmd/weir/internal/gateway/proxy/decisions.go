package proxy

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirhttp"
)

// decisions are what the policies of a route said about a request, for the access log.
type decisions struct {
	policy   string        // that decided: the one that rejected the request, or else the last one
	decision string        // such as "granted"
	waited   time.Duration // in the queues of all policies
}

// The decisions.
const (
	granted        = "granted"
	rejected       = "rejected"
	shadowRejected = "shadow_rejected" // would have been rejected
	failed         = "failed"          // the limiter could not decide
	failedOpen     = "failed_open"     // the limiter could not decide, and the request was admitted
	timedOut       = "timed_out"
)

// byEvent has the decision that each event of a policy reports.
var byEvent = map[string]string{
	ratelimit.EventRejected:       rejected,
	ratelimit.EventShadowRejected: shadowRejected,
	ratelimit.EventShadowError:    shadowRejected,
	weirhttp.EventFailed:          failed,
	weirhttp.EventFailedOpen:      failedOpen,
	weirhttp.EventTimeout:         timedOut,
}

// A Recorder is a listener of policies that notes their decisions on the request, for the access log. Policies are asked
// on the goroutine of the request, one after the other.
type Recorder struct{}

// Hooks implements [pipeline.Listener].
func (r Recorder) Hooks() pipeline.Hooks {
	return pipeline.Hooks{OnEvent: r.onEvent, OnMeasurement: r.onMeasurement}
}

func (Recorder) onEvent(ctx context.Context, e pipeline.Event) {
	if x, decision := requestOf(ctx), byEvent[e.Name]; x != nil && decision != "" {
		x.decisions.policy, x.decisions.decision = e.Source.Strategy, decision
	}
}

// OnRejected notes the status of an answer of the policies, for [weirhttp.LimitsOptions.OnRejected].
func (Recorder) OnRejected(_ http.ResponseWriter, r *http.Request, rejection weirhttp.Rejection) {
	if x := requestOf(r.Context()); x != nil {
		x.meant = rejection.Status
	}
}

func (Recorder) onMeasurement(ctx context.Context, e pipeline.Event) (ended func(context.Context, pipeline.Event)) {
	x := requestOf(ctx)
	if x == nil || e.Name != ratelimit.MeasureRequest {
		return nil
	}
	x.decisions.waited += e.Duration
	if e.Err == nil && x.decisions.decision != shadowRejected && x.decisions.decision != failedOpen {
		x.decisions.policy, x.decisions.decision = e.Source.Strategy, granted
	}
	if e.Err != nil && errors.Is(e.Err, context.Canceled) {
		x.decisions.policy, x.decisions.decision = e.Source.Strategy, failed
	}
	return nil
}
