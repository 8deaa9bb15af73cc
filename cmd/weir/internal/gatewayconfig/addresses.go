package gatewayconfig

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload"
	"github.com/weir-go/weir/strategies/circuitbreaker"
)

// AddressPipeline returns the name in the registry of the pipeline with the circuit breaker of an address of an upstream.
func AddressPipeline(upstream string, a Address) string {
	_, rest, _ := strings.Cut(a.String(), "://")
	return PipelineName + "/" + upstream + "/" + rest
}

// AddressPipelines returns the functions that build the pipelines of all addresses. g has its defaults.
func (g Gateway) AddressPipelines() map[string]func(b *reload.SectionBuilder) error {
	builds := make(map[string]func(b *reload.SectionBuilder) error)
	for name, u := range g.Upstreams {
		for _, a := range u.Addresses {
			builds[AddressPipeline(name, a)] = func(b *reload.SectionBuilder) error {
				b.Add(u.Health.breaker(b))
				return nil
			}
		}
	}
	return builds
}

// breaker returns the circuit breaker of the address whose pipeline is built. A reload that does not change its options
// keeps its state: an address that is down stays out when something else of the file changes.
func (h *Health) breaker(b *reload.SectionBuilder) *circuitbreaker.Strategy {
	return registry.Keep(b.Builder, b.Name, fmt.Sprintf("%+v", h.Options), registry.Kept[*circuitbreaker.Strategy, string]{
		Kind: "circuit breaker",
		Make: func(string) (*circuitbreaker.Strategy, error) { return circuitbreaker.New(&h.Options), nil },
	})
}
