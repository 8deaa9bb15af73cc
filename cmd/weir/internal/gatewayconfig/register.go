package gatewayconfig

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/transport/weirhttp"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

// RetryableHandle is the name of a handle of a retry in files. It does what a retry without a handle does.
const RetryableHandle = "retryable"

func retryable(_ any, err error) bool {
	retryable, known := pipeline.Retryable(err)
	return err != nil && (retryable || !known && !errors.Is(err, context.Canceled))
}

// A Runtime runs what the gateway's part of a file describes. If its functions are nil, a file can be checked and
// explained, but not put in force.
type Runtime struct {
	// Store returns the store of that name. It is called for each limiter that has its state there, while pipelines are
	// built. The Runtime opens a store once, and closes it after the registry: what a file says about stores cannot
	// change while the program runs.
	Store func(name string, s fileconfig.Store) (*store.Store, error)
	// Simulated is for weir simulate, which also takes files without the gateway's part.
	Simulated bool
	// Key returns what stands for the key of that name, whatever it is made of. If nil, it is the key of an HTTP request.
	Key func(name string) func(ctx context.Context) string
	// Pipelines returns the functions that build the pipelines of g, which has its defaults: [PipelineName] and, if
	// need be, others, whose names begin with it and a slash.
	Pipelines func(g Gateway) map[string]func(b *reload.SectionBuilder) error
}

var errNoStatistics = errors.New("weir gateway: the limiter has no statistics")

// Register registers the gateway's part of files with k.
func Register(k *reload.Kinds, r Runtime) {
	k.MaxFileSize(fileconfig.MaxSize)
	reload.RegisterSection(k, Field, reload.Section[Gateway]{
		Doc:       "The reverse proxy of weir gateway.",
		Required:  r.Pipelines != nil && !r.Simulated, // also of a file that replaces one: without it, there would be nothing to serve
		Complete:  true,
		Names:     r.names,
		Check:     func(f *reload.File, g Gateway) error { return g.Check(f) },
		Explain:   func(f *reload.File, g Gateway) string { return g.Explain(f) },
		Pipelines: r.pipelines,
	})
}

func (r Runtime) pipelines(g Gateway) map[string]func(b *reload.SectionBuilder) error {
	if r.Pipelines == nil {
		return map[string]func(b *reload.SectionBuilder) error{
			PipelineName: func(*reload.SectionBuilder) error { return fileconfig.ErrNoRuntime },
		}
	}
	return r.Pipelines(g.WithDefaults())
}

// names gives the stores and keys of g their names.
func (r Runtime) names(n *reload.Names, g Gateway) {
	n.Handle(RetryableHandle, nil, retryable)
	g.Common.Names(n, r.Store)
	for name := range g.Keys {
		n.Key(name, g.keySource(name), func() (func(context.Context) string, error) {
			if r.Key != nil {
				return r.Key(name), nil
			}
			key, err := g.NewKey(name)
			if err != nil {
				return nil, err
			}
			return byContext(key), nil
		})
	}
}

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

// RoutePipelines returns the names that a simulation has for the routes of g: each is [PipelineName], a slash and the
// pattern of the route.
func (g Gateway) RoutePipelines() (names []string) {
	for _, r := range g.Routes {
		names = append(names, PipelineName+"/"+r.Match)
	}
	return names
}

// Simulated returns a Runtime for a simulation. Keys are those of the simulated requests, and stores are in memory: nothing
// that the file names is opened. If name is one of [Gateway.RoutePipelines], there is a pipeline of that name, with the
// policies and the pipeline of the route.
func Simulated(s *simulate.Setup, name string) Runtime {
	r := Runtime{
		Simulated: true,
		Store:     func(name string, _ fileconfig.Store) (*store.Store, error) { return s.Store(name), nil },
		Key: func(name string) func(context.Context) string {
			s.Assume(fmt.Sprintf("The key %q is the key of the request.", name))
			return simulate.Key
		},
	}
	match, isRoute := strings.CutPrefix(name, PipelineName+"/")
	r.Pipelines = func(g Gateway) map[string]func(b *reload.SectionBuilder) error {
		builds := make(map[string]func(b *reload.SectionBuilder) error)
		for _, route := range g.Routes {
			if !isRoute || route.Match != match {
				continue
			}
			builds[name] = func(b *reload.SectionBuilder) error {
				s.Assume(fmt.Sprintf("The upstream %q is the simulated service, without circuit breakers.", route.Upstream))
				return g.simulateRoute(b, route)
			}
		}
		return builds
	}
	return r
}

// simulateRoute adds the policies and the pipeline of a route to b. g has its defaults.
func (g Gateway) simulateRoute(b *reload.SectionBuilder, r Route) error {
	for _, name := range g.PoliciesOf(r) {
		p := g.Policies[name]
		l, err := b.Limiter(p.Limiter)
		if err != nil {
			return err
		}
		if p.MaxWait != 0 {
			l = &hurried{l, p.MaxWait}
		}
		b.Add(ratelimit.New(l, &ratelimit.Options{
			Name: name, Shadow: p.Shadow, Permits: func(context.Context) int { return p.Cost },
		}))
	}
	if r.Pipeline == "" {
		return nil
	}
	p, err := b.Pipeline(r.Pipeline)
	if err == nil {
		b.Add(pipeline.Embed(p))
	}
	return err
}

// A hurried is a limiter in whose queue a request waits for most, or not at all if most is below 0.
type hurried struct {
	limiter.Limiter
	most time.Duration
}

// Acquire implements [limiter.Limiter].
func (h *hurried) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	if h.most < 0 {
		return h.TryAcquire(ctx, n)
	}
	within, cancel := context.WithTimeout(ctx, h.most)
	defer cancel()
	lease, err := h.Limiter.Acquire(within, n)
	if errors.Is(err, context.DeadlineExceeded) && ctx.Err() == nil {
		return custom.Rejected(0, ""), nil
	}
	return lease, err
}
