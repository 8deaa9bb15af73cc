package reload

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/budget"
	"github.com/weir-go/weir/strategies/chaos"
	"github.com/weir-go/weir/strategies/circuitbreaker"
	"github.com/weir-go/weir/strategies/fallback"
	"github.com/weir-go/weir/strategies/hedge"
	"github.com/weir-go/weir/strategies/ratelimit"
	"github.com/weir-go/weir/strategies/retry"
	"github.com/weir-go/weir/strategies/timeout"
)

// A builder builds the strategies of one version of a pipeline.
type builder struct {
	*registry.Builder
	file     *File
	pipeline *model.Pipeline   // nil: of a section
	found    map[thingName]any // see resolve
}

// builder returns a builder of a pipeline of f.
func (f *File) builder(b *registry.Builder, p *model.Pipeline) builder {
	return builder{b, f, p, make(map[thingName]any)}
}

// strategy makes the strategy that s describes. In the options of the strategy, the functions replace their names.
func (b builder) strategy(s *model.Strategy) (pipeline.Strategy, error) {
	if s.Options == nil {
		return nil, errors.New("there is no such kind of strategy")
	}
	if err := b.resolve(s.Options); err != nil {
		return nil, err
	}
	switch o := s.Options.(type) {
	case model.RateLimiterOptions:
		return b.rateLimiter(s, o)
	case model.RetryOptions:
		o.Options.Handle, o.Options.Budget = b.handle(o.Handle), b.budget(s.Budget)
		return retry.New(&o.Options), nil
	case model.HedgingOptions:
		o.Options.Handle, o.Options.Budget = b.handle(o.Handle), b.budget(s.Budget)
		return hedge.New(&o.Options), nil
	case model.TimeoutOptions:
		return timeout.New(o.Timeout, &o.Options), nil
	case model.CircuitBreakerOptions:
		return b.circuitBreaker(s, o)
	case model.FallbackOptions:
		o.Options.Handle = b.handle(o.Handle)
		return fallback.New(named[fallback.Action](b, model.FallbackAction, o.Action), &o.Options), nil
	case model.PipelineOptions:
		p, err := b.Pipeline(o.Name)
		if err != nil {
			return nil, err
		}
		return pipeline.Embed(p), nil
	case model.ChaosFaultOptions:
		return chaos.NewFault(&chaos.FaultOptions{Options: o.Options, Err: named[error](b, model.ChaosError, o.Error)}), nil
	case model.ChaosLatencyOptions:
		return chaos.NewLatency(&o.LatencyOptions), nil
	case model.ChaosOutcomeOptions:
		result := named[func(context.Context) (chaos.Result, bool)](b, model.ChaosOutcome, o.Outcome)
		return chaos.NewOutcome(&chaos.OutcomeOptions{Options: o.Options, ResultFunc: result}), nil
	case model.ChaosBehaviorOptions:
		behavior := named[func(context.Context) error](b, model.ChaosBehavior, o.Behavior)
		return chaos.NewBehavior(&chaos.BehaviorOptions{Options: o.Options, Behavior: behavior}), nil
	default:
		return b.file.kinds.strategies[s.Kind].build(b.Builder, o)
	}
}

func (b builder) handle(name string) func(any, error) bool {
	return named[func(any, error) bool](b, model.HandleFunction, name)
}

// budget returns the registry's budget of that name, or nil if m is nil. The budget keeps what it has counted from one
// version of the file to the next.
func (b builder) budget(m *model.Budget) budget.Budget {
	if m == nil {
		return nil
	}
	return registry.Keep(b.Builder, m.Name, m.Options, registry.Kept[*budget.Ratio, budget.Options]{
		Kind:        "budget",
		Make:        func(o budget.Options) (*budget.Ratio, error) { return budget.New(&o) },
		Reconfigure: func(r *budget.Ratio, o budget.Options) error { return r.Reconfigure(&o) },
	})
}

func (b builder) rateLimiter(s *model.Strategy, o model.RateLimiterOptions) (pipeline.Strategy, error) {
	o.Options.Permits = named[func(context.Context) int](b, model.PermitsFunction, o.Permits)
	name := s.Limiter.Name
	if name == "" {
		name = b.pipeline.RegistryName(s, b.Instance)
	}
	l, err := b.limiter(name, s.Limiter)
	if err != nil {
		return nil, err
	}
	if p, ok := l.(*byContext); ok {
		return ratelimit.NewPartitioned(p.Partitioned, func(ctx context.Context) context.Context { return ctx }, &o.Options), nil
	}
	if !s.Limiter.Adapts() && o.Handle == "" {
		return ratelimit.New(l, &o.Options), nil
	}
	return adaptive.New(l, &adaptive.Options{Name: s.Name, Permits: o.Options.Permits, Handle: b.handle(o.Handle)}), nil
}

// A circuitKey has everything that a circuit breaker is made of. When its key changes, the circuit breaker is made
// again.
type circuitKey struct {
	functions *Kinds // if it names functions: in other Kinds the same names can stand for other functions
	options   string
}

// circuitBreaker returns the circuit breaker that the registry keeps for s under a circuitKey. A new circuit breaker
// starts closed, because the previous one has counted by other rules.
func (b builder) circuitBreaker(s *model.Strategy, o model.CircuitBreakerOptions) (pipeline.Strategy, error) {
	key := circuitKey{options: model.Text(o) + b.file.content.Names.Given[model.HandleFunction][o.Handle].From}
	if o.Handle != "" || o.Control != "" {
		key.functions = b.file.kinds
	}
	o.Options.Handle = b.handle(o.Handle)
	o.Options.Control = named[*circuitbreaker.Control](b, model.CircuitControl, o.Control)
	return keep(b, b.pipeline.RegistryName(s, b.Instance), key, registry.Kept[*circuitbreaker.Strategy, circuitKey]{
		Kind: "circuit breaker",
		Make: func(circuitKey) (*circuitbreaker.Strategy, error) {
			c := circuitbreaker.New(&o.Options)
			return c, c.Validate()
		},
	})
}

// keep is [registry.Keep] with an error if nothing was made. The registry reports the reason.
func keep[T any, O comparable](b builder, name string, o O, k registry.Kept[*T, O]) (*T, error) {
	made := registry.Keep(b.Builder, name, o, k)
	if made == nil {
		return nil, fmt.Errorf("no %s was made", k.Kind)
	}
	return made, nil
}
