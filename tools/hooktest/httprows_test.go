package hooktest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/transport/weirhttp"
)

// serves asks h.
func (x *scene) serves(h http.Handler) drill {
	return drill{do: func() {
		h.ServeHTTP(httptest.NewRecorder(), httptest.NewRequestWithContext(x.context(), http.MethodGet, "http://host/", nil))
	}}
}

func nothing(http.ResponseWriter, *http.Request) {}

// policed asks a handler behind the policy, after one whose permits must not be lost.
func (x *scene) policed(p weirhttp.Policy, o weirhttp.LimitsOptions) drill {
	return x.handled(p, o, http.HandlerFunc(nothing))
}

func (x *scene) handled(p weirhttp.Policy, o weirhttp.LimitsOptions, h http.Handler) drill {
	o.Global = weirhttp.Policy{Limit: weirhttp.Of(x.limiter())}
	if reflect.ValueOf(p.Limit).IsZero() {
		p.Limit = weirhttp.Of(x.limiter())
	}
	o.Policies = map[string]weirhttp.Policy{"p": p}
	return x.serves(must(weirhttp.NewLimits(&o)).Handler(h, "p"))
}

// through asks a handler behind a pipeline, whose permits must not be lost.
func (x *scene) through(o weirhttp.ThroughOptions, h http.HandlerFunc, s ...pipeline.Strategy) drill {
	p := x.pipeline(append([]pipeline.Strategy{ratelimit.New(x.limiter(), nil)}, s...)...)
	return x.serves(weirhttp.Through(p, &o)(h))
}

// A recorder is a RequestRecorder of the program's.
type recorder struct{ x *scene }

func (r recorder) RecordRequest(ctx context.Context, _, _, _ string, _ int, _ string, _ time.Duration) {
	r.x.hit(ctx)
}

// measured asks a handler that is measured, behind one whose permits must not be lost.
func (x *scene) measured(rec weirhttp.RequestRecorder, o *weirhttp.MeasureOptions) drill {
	l := must(weirhttp.NewLimits(&weirhttp.LimitsOptions{Global: weirhttp.Policy{Limit: weirhttp.Of(x.limiter())}}))
	return x.serves(l.Handler(weirhttp.Measure(rec, o)(l.Handler(http.HandlerFunc(nothing)))))
}

// A tripper is a RoundTripper of the program's.
type tripper struct {
	x      *scene
	status int
}

func (t tripper) RoundTrip(r *http.Request) (*http.Response, error) {
	if t.x != nil {
		t.x.hit(r.Context())
	}
	return &http.Response{StatusCode: t.status, Header: http.Header{}, Body: io.NopCloser(strings.NewReader("")), Request: r}, nil
}

// sends sends a request through a pipeline, whose permits must not be lost.
func (x *scene) sends(method string, o weirhttp.TransportOptions, inside ...pipeline.Strategy) drill {
	if o.Base == nil {
		o.Base = tripper{nil, http.StatusServiceUnavailable}
	}
	strategies := []pipeline.Strategy{ratelimit.New(x.limiter(), nil), retry.New(&retry.Options{MaxRetries: 1}), ratelimit.New(x.limiter(), nil)}
	p := x.pipeline(append(strategies, inside...)...)
	client := must(weirhttp.NewTransport(p, &o))
	return drill{do: func() {
		r := must(http.NewRequestWithContext(x.context(), method, "http://host/", nil))
		if resp, err := client.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}}
}

func tooMany(w http.ResponseWriter, _ *http.Request, _ weirhttp.Rejection) {
	w.WriteHeader(http.StatusTooManyRequests)
}

var httpRows = slices.Concat(
	fields(caller, "Cost", weirhttp.Policy{Cost: func(*http.Request) int { return 1 }}, func(x *scene, p *weirhttp.Policy) drill {
		return x.policed(*p, weirhttp.LimitsOptions{})
	}),
	fields(caller, "OnRejected", weirhttp.Policy{OnRejected: tooMany}, func(x *scene, p *weirhttp.Policy) drill {
		p.Limit = weirhttp.Of(x.full())
		return x.policed(*p, weirhttp.LimitsOptions{})
	}),
	fields(caller, "OnRejected Body", weirhttp.LimitsOptions{Body: tooMany}, func(x *scene, o *weirhttp.LimitsOptions) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.Of(x.full())}, *o)
	}),
	fields(caller, "Exempt", weirhttp.LimitsOptions{}, func(x *scene, o *weirhttp.LimitsOptions) drill { return x.policed(weirhttp.Policy{}, *o) }),
	fields(caller, "Failed", weirhttp.ThroughOptions{Failed: func(int) bool { return true }}, func(x *scene, o *weirhttp.ThroughOptions) drill {
		return x.through(*o, func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) })
	}),
	fields(caller, "Status", weirhttp.ThroughOptions{Status: func(error) int { return http.StatusTeapot }}, func(x *scene, o *weirhttp.ThroughOptions) drill {
		return x.through(*o, nothing, pipeline.StrategyFunc(func(context.Context, pipeline.Next) (any, error) { return nil, errBoom }))
	}),
	fields(caller, "OnRejected Body", weirhttp.ThroughOptions{Body: tooMany}, func(x *scene, o *weirhttp.ThroughOptions) drill {
		return x.through(*o, nothing, ratelimit.New(x.full(), nil))
	}),
	fields(caller, "Route", weirhttp.MeasureOptions{}, func(x *scene, o *weirhttp.MeasureOptions) drill { return x.measured(recorder{new(scene)}, o) }),
	fields(caller, "Account", weirhttp.GateOptions{Account: func(*http.Request) string { return "a" }},
		func(x *scene, o *weirhttp.GateOptions) drill {
			return x.sends(http.MethodGet, weirhttp.TransportOptions{}, must(weirhttp.NewGate(o)))
		}),
	fields(caller, "Quotas", weirhttp.GateOptions{Quotas: weirhttp.QuotasOf},
		func(x *scene, o *weirhttp.GateOptions) drill {
			return x.sends(http.MethodGet, weirhttp.TransportOptions{}, must(weirhttp.NewGate(o)))
		}),
	fields(caller, "Failed", weirhttp.TransportOptions{Failed: func(*http.Response) bool { return true }}, func(x *scene, o *weirhttp.TransportOptions) drill {
		return x.sends(http.MethodGet, *o)
	}),
	fields(caller, "Idempotent", weirhttp.TransportOptions{Idempotent: func(*http.Request) bool { return true }},
		func(x *scene, o *weirhttp.TransportOptions) drill { return x.sends(http.MethodPost, *o) }),
	[]row{
		{"weirhttp.ByKey(key) weirhttp.Key weirhttp.Composite(keys) weirhttp.Subject(f)", caller, func(x *scene) drill {
			key := weirhttp.Composite(weirhttp.Route(), weirhttp.Subject(hook(x, func(*http.Request) string { return "a" })))
			return x.policed(weirhttp.Policy{Limit: weirhttp.ByKey(onlyUser{x.user("")}, key)}, weirhttp.LimitsOptions{})
		}},
		{"weirhttp.Of(l)", caller, func(x *scene) drill {
			return x.policed(weirhttp.Policy{Limit: weirhttp.Of(x.user("Acquire"))}, weirhttp.LimitsOptions{})
		}},
		{"weirhttp.ByKey(l) weirhttp.ByRequest(l)", caller, func(x *scene) drill { // the same code
			return x.policed(weirhttp.Policy{Limit: weirhttp.ByKey(onlyUser{x.user("Release")}, weirhttp.Route())}, weirhttp.LimitsOptions{})
		}},
		{"weirhttp.Body weirhttp.Reject(body)", caller, func(x *scene) drill {
			body := hook(x, tooMany)
			return x.handled(weirhttp.Policy{}, weirhttp.LimitsOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
				weirhttp.Reject(w, r, body, weirhttp.Rejection{})
			}))
		}},
		{"weirhttp.LimitsOptions.Listener", caller, func(x *scene) drill {
			return x.policed(weirhttp.Policy{}, weirhttp.LimitsOptions{Listener: listener{x, ratelimit.MeasureRequest}})
		}},
		{"weirhttp.Limits.Handler(h)", caller, func(x *scene) drill {
			return x.handled(weirhttp.Policy{}, weirhttp.LimitsOptions{}, http.HandlerFunc(hook(x, nothing)))
		}},
		{"weirhttp.PerKey(factory)", caller, func(x *scene) drill {
			made := x.limiter()
			l := must(weirhttp.PerKey(func(key string) (limiter.Limiter, error) {
				if key == "a" {
					x.hit()
					return made, nil
				}
				return limiter.NewUnlimited(), nil
			}, nil))
			x.then(func() { _ = l.Close() })
			return drill{do: x.takesKey(l, "a"), also: x.takesKey(l, "b")}
		}},
		{"weirhttp.Measure(recorder) weirhttp.RequestRecorder.RecordRequest", caller, func(x *scene) drill { return x.measured(recorder{x}, nil) }},
		{"weirhttp.TransportOptions.Base", caller, func(x *scene) drill {
			return x.sends(http.MethodGet, weirhttp.TransportOptions{Base: tripper{x, http.StatusOK}})
		}},
	},
)
