package gatewayconfig

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/limiter/custom"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/simulate"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/ratelimit"

	"github.com/weir-go/weir/cmd/weir/internal/fileconfig"
)

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
