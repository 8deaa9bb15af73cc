package reload

import (
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// A strategyKind decodes and builds the strategies of one kind.
type strategyKind struct {
	options reflect.Type
	usual   string // the name in telemetry unless it is set; "": none
	decode  func(d *decoder, n *document.Node, path string, s *model.Strategy)
	build   func(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error)
}

var ownStrategies = map[string]*strategyKind{
	"rate_limiter": {
		options: reflect.TypeFor[model.RateLimiterOptions](),
		usual:   "RateLimiter",
		decode:  decodeRateLimiter,
		build:   buildRateLimiter,
	},
	"retry": {
		options: reflect.TypeFor[model.RetryOptions](),
		usual:   "Retry",
		decode:  decodeRetry,
		build:   buildRetry,
	},
	"circuit_breaker": {
		options: reflect.TypeFor[model.CircuitBreakerOptions](),
		usual:   "CircuitBreaker",
		build:   buildCircuitBreaker,
	},
	"fallback": {
		options: reflect.TypeFor[model.FallbackOptions](),
		usual:   "Fallback",
		build:   buildFallback,
	},
	"hedging": {
		options: reflect.TypeFor[model.HedgingOptions](),
		usual:   "Hedging",
		decode:  decodeHedging,
		build:   buildHedging,
	},
	"chaos_fault":    {options: reflect.TypeFor[model.ChaosFaultOptions](), usual: "Chaos.Fault", build: buildChaosFault},
	"chaos_latency":  {options: reflect.TypeFor[model.ChaosLatencyOptions](), usual: "Chaos.Latency", build: buildChaosLatency},
	"chaos_outcome":  {options: reflect.TypeFor[model.ChaosOutcomeOptions](), usual: "Chaos.Outcome", build: buildChaosOutcome},
	"chaos_behavior": {options: reflect.TypeFor[model.ChaosBehaviorOptions](), usual: "Chaos.Behavior", build: buildChaosBehavior},
	"timeout": {
		options: reflect.TypeFor[model.TimeoutOptions](),
		usual:   "Timeout",
		build:   buildTimeout,
	},
	"pipeline": {
		options: reflect.TypeFor[model.PipelineOptions](),
		decode:  decodeEmbedded,
		build:   buildEmbedded,
	},
}

func keysOf[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// decodeOptions decodes into a new struct of that type and returns it.
func (d *decoder) decodeOptions(n *document.Node, t reflect.Type, path string, more extras) any {
	v := reflect.New(t)
	d.options(n, v, path, more)
	return v.Elem().Interface()
}

// strategyName returns the name of a strategy in telemetry.
func (k *strategyKind) strategyName(options any) string {
	if k.usual == "" {
		return ""
	}
	v := reflect.ValueOf(options)
	for _, f := range model.FieldsOf(v.Type()) {
		if f.IsName() {
			if name := v.FieldByIndex(f.Index).String(); name != "" {
				return name
			}
		}
	}
	return k.usual
}

func decodeRetry(d *decoder, n *document.Node, path string, s *model.Strategy) {
	s.Options = d.decodeOptions(n, reflect.TypeFor[model.RetryOptions](), path, nil)
	d.budgetOf(n, path, s)
}

func buildRetry(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.RetryOptions)
	o := from.Options
	var err error
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	o.Budget = keepBudget(b, s.Budget)
	return retry.New(&o), nil
}

func buildTimeout(_ *registry.Builder, _ *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	o := s.Options.(model.TimeoutOptions)
	return timeout.New(o.Timeout, &o.Options), nil
}

func decodeEmbedded(d *decoder, n *document.Node, path string, s *model.Strategy) {
	s.Options = d.decodeOptions(n, reflect.TypeFor[model.PipelineOptions](), path, nil)
	if name := n.Get("name"); name != nil && name.Kind == document.Text {
		d.pipelineRefs = append(d.pipelineRefs, reference{name, document.Child(path, "name"), d.pipeline})
	}
}

func buildEmbedded(b *registry.Builder, _ *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	p, err := b.Pipeline(s.Options.(model.PipelineOptions).Name)
	if err != nil {
		return nil, err
	}
	return pipeline.Embed(p), nil
}

func buildFallback(_ *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.FallbackOptions)
	action, err := registered[fallback.Action](k, model.FallbackAction, from.Action)
	if err != nil {
		return nil, err
	}
	o := from.Options
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	return fallback.New(action, &o), nil
}

func decodeHedging(d *decoder, n *document.Node, path string, s *model.Strategy) {
	s.Options = d.decodeOptions(n, reflect.TypeFor[model.HedgingOptions](), path, nil)
	d.budgetOf(n, path, s)
}

func buildHedging(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.HedgingOptions)
	o := from.Options
	var err error
	if o.Handle, err = k.handle(from.Handle); err != nil {
		return nil, err
	}
	o.Budget = keepBudget(b, s.Budget)
	return hedge.New(&o), nil
}

// buildStrategy returns the strategy s.
func buildStrategy(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	kind := k.strategy(s.Kind)
	if kind == nil {
		return nil, errors.New("there is no such kind of strategy")
	}
	return kind.build(b, k, s)
}
