package hooktest

import (
	"context"
	"io"
	"net/http"
	"net/http/httptest"
	"reflect"
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

func refuses(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusServiceUnavailable) }

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
func (x *scene) sends(method string, o weirhttp.TransportOptions) drill {
	if o.Base == nil {
		o.Base = tripper{nil, http.StatusServiceUnavailable}
	}
	p := x.pipeline(ratelimit.New(x.limiter(), nil), retry.New(&retry.Options{MaxRetries: 1}), ratelimit.New(x.limiter(), nil))
	client := must(weirhttp.NewTransport(p, &o))
	return drill{do: func() {
		r := must(http.NewRequestWithContext(x.context(), method, "http://host/", nil))
		if resp, err := client.RoundTrip(r); err == nil {
			_ = resp.Body.Close()
		}
	}}
}

// key is a Key that is the hook.
func (x *scene) key(r *http.Request) string { x.hit(r.Context()); return "a" }

// body is a Body that is the hook.
func (x *scene) body(w http.ResponseWriter, r *http.Request, _ weirhttp.Rejection) {
	x.hit(r.Context())
	w.WriteHeader(http.StatusTooManyRequests)
}

// byRequest is a partitioned limiter of the program's for requests.
type byRequest struct{ *userLimiter }

func (b byRequest) TryAcquire(ctx context.Context, _ *http.Request, n int) (limiter.Lease, error) {
	return b.userLimiter.TryAcquire(ctx, n)
}

func (b byRequest) Acquire(ctx context.Context, _ *http.Request, n int) (limiter.Lease, error) {
	return b.userLimiter.Acquire(ctx, n)
}

var httpRows = []row{
	{"weirhttp.Policy.Cost", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Cost: func(r *http.Request) int { x.hit(r.Context()); return 1 }}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.ByKey(key) weirhttp.Key", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.ByKey(onlyUser{x.user("")}, x.key)}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.Composite(keys)", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.ByKey(onlyUser{x.user("")}, weirhttp.Composite(weirhttp.Route(), x.key))}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.Subject(f)", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.ByKey(onlyUser{x.user("")}, weirhttp.Subject(x.key))}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.Of(l)", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.Of(x.user("Acquire"))}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.ByKey(l)", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.ByKey(onlyUser{x.user("Release")}, weirhttp.Route())}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.ByRequest(l)", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.ByRequest(byRequest{x.user("Acquire")})}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.Policy.OnRejected", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.Of(x.full()), OnRejected: x.body}, weirhttp.LimitsOptions{})
	}},
	{"weirhttp.LimitsOptions.OnRejected", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.Of(x.full())}, weirhttp.LimitsOptions{OnRejected: x.body})
	}},
	{"weirhttp.LimitsOptions.Body weirhttp.Body", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{Limit: weirhttp.Of(x.full())}, weirhttp.LimitsOptions{Body: x.body})
	}},
	{"weirhttp.Reject(body)", caller, func(x *scene) drill {
		return x.handled(weirhttp.Policy{}, weirhttp.LimitsOptions{}, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			weirhttp.Reject(w, r, x.body, weirhttp.Rejection{})
		}))
	}},
	{"weirhttp.LimitsOptions.Exempt", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{}, weirhttp.LimitsOptions{Exempt: func(r *http.Request) bool { x.hit(r.Context()); return false }})
	}},
	{"weirhttp.LimitsOptions.Listener", caller, func(x *scene) drill {
		return x.policed(weirhttp.Policy{}, weirhttp.LimitsOptions{Listener: listener{x, ratelimit.MeasureRequest}})
	}},
	{"weirhttp.Limits.Handler(h)", caller, func(x *scene) drill {
		return x.handled(weirhttp.Policy{}, weirhttp.LimitsOptions{}, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { x.hit(r.Context()) }))
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

	{"weirhttp.ThroughOptions.Failed", caller, func(x *scene) drill {
		return x.through(weirhttp.ThroughOptions{Failed: func(int) bool { x.hit(); return true }}, refuses)
	}},
	{"weirhttp.ThroughOptions.Status", caller, func(x *scene) drill {
		return x.through(weirhttp.ThroughOptions{Status: func(error) int { x.hit(); return http.StatusTeapot }}, nothing, failing{})
	}},
	{"weirhttp.ThroughOptions.OnRejected", caller, func(x *scene) drill {
		return x.through(weirhttp.ThroughOptions{OnRejected: x.body}, nothing, ratelimit.New(x.full(), nil))
	}},
	{"weirhttp.ThroughOptions.Body", caller, func(x *scene) drill {
		return x.through(weirhttp.ThroughOptions{Body: x.body}, nothing, ratelimit.New(x.full(), nil))
	}},

	{"weirhttp.Measure(recorder) weirhttp.RequestRecorder.RecordRequest", caller, func(x *scene) drill {
		return x.measured(recorder{x}, nil)
	}},
	{"weirhttp.MeasureOptions.Route", caller, func(x *scene) drill {
		route := func(r *http.Request) string { x.hit(r.Context()); return "/" }
		return x.measured(recorder{new(scene)}, &weirhttp.MeasureOptions{Route: route})
	}},

	{"weirhttp.TransportOptions.Base", caller, func(x *scene) drill {
		return x.sends(http.MethodGet, weirhttp.TransportOptions{Base: tripper{x, http.StatusOK}})
	}},
	{"weirhttp.TransportOptions.Failed", caller, func(x *scene) drill {
		return x.sends(http.MethodGet, weirhttp.TransportOptions{Failed: func(*http.Response) bool { x.hit(); return true }})
	}},
	{"weirhttp.TransportOptions.Idempotent", caller, func(x *scene) drill {
		return x.sends(http.MethodPost, weirhttp.TransportOptions{Idempotent: func(*http.Request) bool { x.hit(); return true }})
	}},
}

// failing is a strategy that fails.
type failing struct{}

func (failing) Execute(context.Context, pipeline.Next) (any, error) { return nil, errBoom }
