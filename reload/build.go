package reload

import (
	"context"
	"errors"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
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
		return ratelimit.NewPartitioned(p.partitioned, func(ctx context.Context) context.Context { return ctx }, &o.Options), nil
	}
	if !s.Limiter.Adapts() && o.Handle == "" {
		return ratelimit.New(l, &o.Options), nil
	}
	o.Options.Name = s.Name
	return model.Adaptive(l, o.Options, b.handle(o.Handle)), nil
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
func keep[T, O comparable](b builder, name string, o O, k registry.Kept[T, O]) (made T, err error) {
	if made = registry.Keep(b.Builder, name, o, k); made == *new(T) {
		err = fmt.Errorf("no %s was made", k.Kind)
	}
	return made, err
}

// limiter makes or keeps the limiter that l describes. name is its name in the registry.
func (b builder) limiter(name string, l *model.Limiter) (made limiter.Limiter, err error) {
	if l.Options != nil {
		err = b.resolve(l.Options)
	}
	if err == nil && l.Store != nil {
		err = b.resolve(*l.Store)
	}
	if err == nil {
		made, err = b.makeLimiter(name, l)
	}
	if err != nil {
		return nil, fmt.Errorf("limiter %q: %w", name, err)
	}
	return made, nil
}

func (b builder) makeLimiter(name string, l *model.Limiter) (limiter.Limiter, error) {
	// First, because a kind of the program can have the same type of options as one of weir's kinds.
	if kind, ofProgram := b.file.kinds.limiters[l.Kind]; ofProgram {
		return kind.build(b.Builder, name, l.Options)
	}
	var s *store.Store // nil: the state is in the process
	if l.Store != nil {
		s = named[*store.Store](b, model.LimiterStore, l.Store.Name)
	}
	switch o := l.Options.(type) {
	case limiter.Options:
		if s != nil {
			return registry.Shared(b.Builder, s, name, o, &l.Store.LimiterOptions), nil
		}
		return b.Limiter(name, o), nil
	case model.PartitionedOptions:
		return b.partitioned(s, name, l, o)
	}
	if kind, learns := model.Learning[l.Kind]; learns { // it keeps what it has learnt as long as its options stay the same
		return keep(b, name, model.Text(l.Options), registry.Kept[limiter.Limiter, string]{
			Kind: l.Kind,
			Make: func(string) (limiter.Limiter, error) { return kind.Make(l.Options) },
		})
	}
	switch l.Kind {
	case "unlimited":
		return limiter.NewUnlimited(), nil
	case model.ChainKind:
		return b.chain(l)
	default:
		return nil, fmt.Errorf("there is no limiter kind %q", l.Kind)
	}
}

func (b builder) chain(l *model.Limiter) (limiter.Limiter, error) {
	members, names := make([]limiter.Limiter, len(l.Members)), make([]string, len(l.Members))
	for i, m := range l.Members {
		var err error
		names[i] = m.Name
		if members[i], err = b.limiter(m.Name, m); err != nil {
			return nil, err
		}
	}
	chain, err := limiter.Chain(members...)
	if err == nil {
		chain, err = chain.Named(names...)
	}
	if err != nil {
		return nil, err
	}
	return chain, nil
}

// partitioned returns a partitioned limiter. If the limiter
// has a store s, keepKey is not needed: pipelines share only the state in the store, and each calls its own key
// function.
func (b builder) partitioned(s *store.Store, name string, l *model.Limiter, o model.PartitionedOptions) (limiter.Limiter, error) {
	each, ok := l.Each.Options.(limiter.Options)
	if !ok {
		return nil, fmt.Errorf("a limiter for each key cannot be a %s", l.Each.Kind)
	}
	key := named[func(context.Context) string](b, model.KeyFunction, o.Key)
	if s == nil {
		b.keepKey(name, o.Key)
		return &byContext{registry.Partitioned(b.Builder, name, key, each, &o.PartitionedOptions)}, nil
	}
	shared, _ := limiter.Translate(registry.SharedPartitioned(b.Builder, s, name, each, &l.Store.LimiterOptions), key).(partitioned)
	return &byContext{shared}, nil
}

// A keyIdentity identifies the key function of a partitioned limiter.
type keyIdentity struct {
	Key   string // the name in the file
	kinds *Kinds // in other Kinds the same name can stand for another function
	from  string // what the section made it from that gave the name
}

// keepKey makes a build fail if two pipelines share a limiter and name different key functions. Otherwise the key
// function of the pipeline that was built last would be used for both.
func (b builder) keepKey(name, key string) {
	registry.Keep(b.Builder, name, keyIdentity{key, b.file.kinds, b.file.content.Names.Given[model.KeyFunction][key].From}, registry.Kept[struct{}, keyIdentity]{
		Kind:        "key function of the limiter",
		Make:        func(keyIdentity) (none struct{}, err error) { return none, nil },
		Reconfigure: func(struct{}, keyIdentity) error { return nil },
	})
}

// byContext adapts a limiter that is partitioned by the context to [limiter.Limiter], so that it can be in a chain.
type byContext struct{ partitioned }

// partitioned is what all partitioned limiters of a file are.
type partitioned interface {
	limiter.Partitioned[context.Context]
	limiter.PartitionedPeeker[context.Context]
	limiter.PartitionedCharger[context.Context]
}

func (p *byContext) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.partitioned.TryAcquire(ctx, ctx, n)
}

func (p *byContext) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.partitioned.Acquire(ctx, ctx, n)
}

func (p *byContext) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	return p.partitioned.Peek(ctx, ctx, n)
}

func (p *byContext) Charge(ctx context.Context, n int) (limiter.Level, error) {
	return p.partitioned.Charge(ctx, ctx, n)
}

// resolve finds the functions and values that the options name, for named. Without [Kinds.AcceptUnknown] and
// [Kinds.Assume], Parse has refused names that there are not.
func (b builder) resolve(options any) error {
	v := reflect.ValueOf(options)
	for _, f := range model.FieldsOf(v.Type()) {
		if f.Purpose == "" {
			continue
		}
		name := v.FieldByIndex(f.Index).String()
		if name == "" && !f.Required {
			continue
		}
		thing, err := b.find(f.Purpose, name)
		if err != nil {
			return err
		}
		b.found[thingName{f.Purpose, name}] = thing
	}
	return nil
}

// find returns what a section of the file makes under that name or, if none gives the name, what the program has registered.
func (b builder) find(what model.Purpose, name string) (any, error) {
	given, ok := b.file.content.Names.Given[what][name]
	if !ok {
		return b.file.kinds.find(thingName{what, name})
	}
	thing, err := given.New()
	if err == nil && isnil.Value(thing) {
		err = errors.New("it is nil")
	}
	if err != nil {
		return nil, fmt.Errorf("the %s %q: %w", what, name, err)
	}
	return thing, nil
}

// named returns what resolve has found, or the zero F for an empty name.
func named[F any](b builder, what model.Purpose, name string) F {
	f, _ := b.found[thingName{what, name}].(F)
	return f
}
