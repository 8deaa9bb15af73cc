package proxy

import (
	"context"
	"errors"
	"log/slog"
	"net/http"
	"time"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/timeout"
	"github.com/weir-go/weir/transport/weirhttp"
)

// maxText is how many bytes of a text are written. A path can have as many as all of the header.
const maxText = 1024

// write writes the line of a request. It leaves out what is not known. aborted answers broke off.
func (l *Log) write(x *request, r *http.Request, took time.Duration, finished bool) {
	attrs := make([]slog.Attr, 0, 24)
	text := func(name, value string) {
		if len(value) > maxText {
			value = value[:maxText] + "…"
		}
		if value != "" {
			attrs = append(attrs, slog.String(name, value))
		}
	}
	text("client", x.table.trust.address(r))
	text("method", r.Method)
	text("host", r.Host)
	text("path", r.URL.Path)
	if l.Query {
		text("query", r.URL.RawQuery)
	}
	text("protocol", r.Proto)
	if x.route != nil {
		text("route", x.route.Match)
	}
	attrs = append(attrs, slog.Int("status", x.status()), slog.Float64("seconds", seconds(took)), slog.Int64("bytes", x.answer.bytes.Load()))
	if x.route != nil {
		text("upstream", x.route.Upstream.Name())
	}
	attempts, address := x.exchange.Attempts()
	text("address", address)
	if attempts > 0 {
		attrs = append(attrs, slog.Int("attempts", attempts))
	}
	text("policy", x.decided.policy)
	text("decision", x.decided.decision)
	if x.decided.waited >= time.Millisecond {
		attrs = append(attrs, slog.Float64("waited", seconds(x.decided.waited)))
	}
	if key := x.table.policies[x.decided.policy].Key; key != nil && x.route != nil {
		if k := key(x.Request); k != "" {
			text("key", l.Key(k))
		}
	}
	if !finished {
		attrs = append(attrs, slog.Bool("aborted", true))
	}
	if x.fault != nil {
		text("error", x.fault.Error())
	}
	record := slog.NewRecord(x.began, slog.LevelInfo, "request", 0)
	record.AddAttrs(attrs...)
	_ = l.Handler.Handle(context.Background(), record)
}

// seconds returns d in seconds, to the microsecond.
func seconds(d time.Duration) float64 { return float64(d.Microseconds()) / 1e6 }

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
	timeout.EventTimeout:          timedOut,
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
		x.decided.policy, x.decided.decision = e.Source.Strategy, decision
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
	x.decided.waited += e.Duration
	if e.Err == nil && x.decided.decision != shadowRejected && x.decided.decision != failedOpen {
		x.decided.policy, x.decided.decision = e.Source.Strategy, granted
	}
	if e.Err != nil && errors.Is(e.Err, context.Canceled) {
		x.decided.policy, x.decided.decision = e.Source.Strategy, failed
	}
	return nil
}
