package reload

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/strategies/adaptive"
)

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
	case adaptive.LimiterOptions: // it keeps what it has learnt as long as its options stay the same
		return keep(b, name, model.Text(o), registry.Kept[*adaptive.Limiter, string]{
			Kind: "adaptive limiter",
			Make: func(string) (*adaptive.Limiter, error) { return adaptive.NewLimiter(&o) },
		})
	case adaptive.ThrottlerOptions: // likewise
		return keep(b, name, o, registry.Kept[*adaptive.Throttler, adaptive.ThrottlerOptions]{
			Kind: "throttler",
			Make: func(o adaptive.ThrottlerOptions) (*adaptive.Throttler, error) { return adaptive.NewThrottler(&o) },
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
	return &byContext{limiter.Translate(registry.SharedPartitioned(b.Builder, s, name, each, &l.Store.LimiterOptions), key)}, nil
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
type byContext struct {
	limiter.Partitioned[context.Context]
}

func (p *byContext) TryAcquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.Partitioned.TryAcquire(ctx, ctx, n)
}

func (p *byContext) Acquire(ctx context.Context, n int) (limiter.Lease, error) {
	return p.Partitioned.Acquire(ctx, ctx, n)
}

// Peek returns the error [errors.ErrUnsupported] if the limiter is no [limiter.PartitionedPeeker].
func (p *byContext) Peek(ctx context.Context, n int) (limiter.Lease, error) {
	if l, ok := p.Partitioned.(limiter.PartitionedPeeker[context.Context]); ok {
		return l.Peek(ctx, ctx, n)
	}
	return limiter.Lease{}, fmt.Errorf("a limiter of %T has no Peek: %w", p.Partitioned, errors.ErrUnsupported)
}

// Charge returns the error [errors.ErrUnsupported] if the limiter is no [limiter.PartitionedCharger].
func (p *byContext) Charge(ctx context.Context, n int) (limiter.Level, error) {
	if l, ok := p.Partitioned.(limiter.PartitionedCharger[context.Context]); ok {
		return l.Charge(ctx, ctx, n)
	}
	return limiter.Level{}, fmt.Errorf("a limiter of %T cannot be charged: %w", p.Partitioned, errors.ErrUnsupported)
}
