package reload

import (
	"context"
	"errors"
	"maps"
	"reflect"
	"slices"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// A strategyKind is how the strategies of one kind are decoded and made.
type strategyKind struct {
	options reflect.Type
	usual   string // the name without a name; "" if it has none
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

// decodeOptions decodes into a new struct of that type.
func (d *decoder) decodeOptions(n *document.Node, t reflect.Type, path string, more extras) any {
	v := reflect.New(t)
	d.options(n, v, path, more)
	return v.Elem().Interface()
}

// strategyName returns what a strategy is called in telemetry.
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

// decodeRateLimiter decodes the options and the one limiter among them.
func decodeRateLimiter(d *decoder, n *document.Node, path string, s *model.Strategy) {
	more := extras{"limiter": func(name *document.Node, path string) {
		if name.Kind != document.Text {
			d.Add(name, path, "must be the name of a limiter, found %v", name)
			return
		}
		d.limiterRefs = append(d.limiterRefs, limiterRef{reference{name, path, ""}, func(l *model.Limiter) { s.Limiter = l }})
	}}
	in := d.storeAmong(n, path, more)
	for _, kind := range d.kinds.limiterNames() {
		more[kind] = func(options *document.Node, path string) { s.Limiter = d.limiter(kind, options, path, in) }
	}
	d.acceptLimiters(n, more, s)
	s.Options = d.decodeOptions(n, reflect.TypeFor[model.RateLimiterOptions](), path, more)
	if n.Kind != document.Mapping {
		return
	}
	var limiters []document.Entry
	for _, e := range n.Entries {
		if more[e.Key.Text] != nil && e.Key.Text != model.StoreField {
			limiters = append(limiters, e)
		}
	}
	kinds := document.OneOf(append([]string{"limiter"}, d.kinds.limiterNames()...))
	switch {
	case len(limiters) == 0:
		d.Add(n, path, "the limiter is missing: one of %s", kinds)
	case len(limiters) > 1:
		d.Add(limiters[1].Key, path, "%s is a second limiter, there is %s; a chain has several", limiters[1].Key.Text, limiters[0].Key.Text)
	}
}

// acceptLimiters takes fields that are not known for kinds of limiters, where that
// is wanted.
func (d *decoder) acceptLimiters(n *document.Node, more extras, s *model.Strategy) {
	if !d.kinds.lenient {
		return
	}
	known := keysOf(more)
	for _, f := range model.FieldsOf(reflect.TypeFor[model.RateLimiterOptions]()) {
		known = append(known, f.Name)
	}
	for _, e := range n.Entries {
		if d.kinds.accepts(e.Key.Text, known) {
			more[e.Key.Text] = func(*document.Node, string) { s.Limiter = &model.Limiter{Kind: e.Key.Text} }
		}
	}
}

func buildRateLimiter(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	from := s.Options.(model.RateLimiterOptions)
	o := from.Options
	if from.Permits != "" {
		var err error
		if o.Permits, err = registered[func(context.Context) int](k, model.PermitsFunction, from.Permits); err != nil {
			return nil, err
		}
	}
	name := s.Limiter.Name
	if name == "" {
		name = s.OwnName(b.Name, b.Instance)
	}
	l, err := buildLimiter(b, k, name, s.Limiter)
	if err != nil {
		return nil, err
	}
	if p, ok := l.(*byContext); ok {
		return ratelimit.NewPartitioned(p.Partitioned, inContext, &o), nil
	}
	if learns, _ := adapts(s.Limiter); !learns && from.Handle == "" {
		return ratelimit.New(l, &o), nil
	}
	handle, err := k.handle(from.Handle)
	if err != nil {
		return nil, err
	}
	return adaptive.New(l, &adaptive.Options{Name: s.Name, Permits: o.Permits, Handle: handle}), nil
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

// buildStrategy returns the strategy s.
func buildStrategy(b *registry.Builder, k *Kinds, s *model.Strategy) (pipeline.Strategy, error) {
	kind := k.strategy(s.Kind)
	if kind == nil {
		return nil, errors.New("there is no such kind of strategy")
	}
	return kind.build(b, k, s)
}
