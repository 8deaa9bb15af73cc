package gateway

import (
	"fmt"
	"net/url"
	"strings"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/circuitbreaker"

	"github.com/weir-go/weir/cmd/weir/internal/gatewayconfig"
)

// addressPipeline returns the name of the pipeline with the circuit breaker of an address of an upstream. A slash in the name
// of the upstream is escaped, so that http://c of the upstream a/b is not http://b/c of the upstream a.
func addressPipeline(upstream string, a gatewayconfig.Address) string {
	_, rest, _ := strings.Cut(a.String(), "://")
	return gatewayconfig.PipelineName + "/" + url.PathEscape(upstream) + "/" + rest
}

// pipelines returns the functions that build the pipelines of the gateway: the one with the routes, and one with the
// circuit breaker of each address that has one, so that metrics and the dashboard show the addresses like all other pipelines.
func (g *gateway) pipelines(c gatewayconfig.Gateway) map[string]func(b *reload.SectionBuilder) error {
	builds := map[string]func(b *reload.SectionBuilder) error{
		gatewayconfig.PipelineName: func(b *reload.SectionBuilder) error { return g.build(b, c) },
	}
	for name, u := range c.Upstreams {
		o, ok := u.Breaker()
		if !ok {
			continue
		}
		for _, a := range u.Addresses {
			builds[addressPipeline(name, a)] = func(b *reload.SectionBuilder) error {
				b.Add(breaker(b, &o))
				return nil
			}
		}
	}
	return builds
}

// breaker returns the circuit breaker of the address whose pipeline is built. A reload that does not change its options
// keeps its state: an address that is down stays out when something else of the file changes.
func breaker(b *reload.SectionBuilder, o *circuitbreaker.Options) *circuitbreaker.Strategy {
	return registry.Keep(b.Builder, b.Name, fmt.Sprintf("%+v", *o), registry.Kept[*circuitbreaker.Strategy, string]{
		Kind: "circuit breaker",
		Make: func(string) (*circuitbreaker.Strategy, error) { return circuitbreaker.New(o), nil },
	})
}
