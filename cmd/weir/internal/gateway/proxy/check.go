package proxy

import (
	"context"
	"errors"
	"net/http"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/transport/weirhttp"
)

// A Policy is what the access log and Check need to know of a policy.
type Policy struct {
	Limiter  string // its name
	Shadow   bool
	FailOpen bool
	// Key finds the key of a request. It is nil if the limiter is not partitioned.
	Key weirhttp.Key
	// Peek asks the limiter without taking anything. The context has the request, for key functions.
	Peek func(ctx context.Context) (limiter.Lease, error)
}

// A Checked is what a policy would decide about a request now.
type Checked struct {
	Policy
	Name  string
	Key   string
	Lease limiter.Lease
	Err   error
}

// A Limiter is what Check needs to know of a limiter in the pipeline of a route.
type Limiter struct {
	Name string
	Key  weirhttp.Key // nil if the limiter is not partitioned
}

// Check returns the pattern of the route that the request would take, and what its policies would decide about it now.
// Then it calls behind with the route and with a context in which strategies and key functions find the request as the
// gateway would send it. Nothing is taken and nothing is sent. route is "" if no route matches.
func (h *Handler) Check(r *http.Request, behind func(ctx context.Context, route Route)) (route string, all []Checked, err error) {
	x := &request{Context: r.Context(), looking: true}
	err = h.pipeline.Execute(x, func(context.Context) error {
		x.table.serve(nowhere{}, r.WithContext(x), x)
		if x.route == nil {
			return x.fault
		}
		route = x.route.Match
		inRequest(nowhere{}, x.routed, func(ctx context.Context) {
			for _, name := range x.route.Policies {
				p := x.table.policies[name]
				checked := Checked{Policy: p, Name: name}
				if p.Key != nil {
					checked.Key = p.Key(x.routed)
				}
				checked.Lease, checked.Err = p.Peek(ctx)
				all = append(all, checked)
			}
		})
		return x.route.behind(x.routed, behind)
	})
	return route, all, err
}

// behind calls f with the route and the context that the strategies of its pipeline would get for a request.
func (t *route) behind(r *http.Request, f func(ctx context.Context, route Route)) error {
	called := false
	found := finding(func(ctx context.Context) {
		called = true
		f(ctx, t.Route)
	})
	transport, err := weirhttp.NewTransport(weir.Must(pipeline.New("check", found)), &weirhttp.TransportOptions{Base: t.Upstream})
	if err != nil {
		return err
	}
	p := t.proxy // a copy, so that the request is made as for the upstream
	p.Transport = transport
	p.ErrorHandler = func(_ http.ResponseWriter, _ *http.Request, got error) { err = got }
	p.ServeHTTP(nowhere{}, r)
	if called {
		return nil
	}
	return err
}

// errFound ends a request that is only looked up before it is sent.
var errFound = errors.New("gateway: the request is only looked up")

// finding is a strategy that gets the context of an execution and sends nothing.
type finding func(ctx context.Context)

// Execute implements [pipeline.Strategy].
func (f finding) Execute(ctx context.Context, _ pipeline.Next) (any, error) {
	f(ctx)
	return nil, errFound
}

// inRequest calls f with a context in which key functions find the request.
func inRequest(w http.ResponseWriter, r *http.Request, f func(ctx context.Context)) {
	wrap := weir.Must(weir.Must(weirhttp.NewLimits(nil)).WrapInline(weirhttp.Policy{Limiter: limiter.NewUnlimited()}))
	wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { f(r.Context()) })).ServeHTTP(w, r)
}

// nowhere is the ResponseWriter of a request that is only looked up.
type nowhere struct{}

func (nowhere) Header() http.Header         { return http.Header{} }
func (nowhere) Write(p []byte) (int, error) { return len(p), nil }
func (nowhere) WriteHeader(int)             {}
