package reload

import (
	"context"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/store"
)

// storableOf is [limiterOf] for a kind that can have a store.
func storableOf[O registry.LimiterOptions](build func(b *registry.Builder, name string, o O) (limiter.Limiter, error)) *limiterKind {
	return &limiterKind{
		options: reflect.TypeFor[O](),
		decode: func(d *decoder, n *document.Node, path string, l *limiterModel) {
			var o O
			s := d.options(n, reflect.ValueOf(&o), path, nil)
			l.options = o
			if l.store != nil && s != nil {
				d.checkStored(o, s, l.store.kind)
			}
		},
		build: func(b *registry.Builder, k *Kinds, name string, l *limiterModel) (limiter.Limiter, error) {
			if l.store == nil {
				return build(b, name, l.options.(O))
			}
			s, err := registered[*store.Store](k, limiterStore, l.store.Name)
			if err != nil {
				return nil, err
			}
			return registry.Shared(b, s, name, l.options.(O), &l.store.LimiterOptions), nil
		},
	}
}

// buildInStore is buildPartitioned for a limiter with a store. Each version finds keys by its
// own function: there is nothing else in the process that would have to be told of another.
func buildInStore(b *registry.Builder, k *Kinds, name string, l *limiterModel, key func(context.Context) string) (limiter.Limiter, error) {
	s, err := registered[*store.Store](k, limiterStore, l.store.Name)
	if err != nil {
		return nil, err
	}
	how := &l.store.LimiterOptions
	var p limiter.Partitioned[string]
	switch each := l.each.options.(type) {
	case limiter.TokenBucketOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	case limiter.FixedWindowOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	case limiter.SlidingWindowOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	case limiter.ConcurrencyOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	default:
		return nil, fmt.Errorf("a %s has no limiter in a store", l.each.kind)
	}
	return &byContext{limiter.Translate(p, key)}, nil
}
