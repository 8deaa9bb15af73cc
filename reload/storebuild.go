package reload

import (
	"context"
	"fmt"
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
)

// storableOf is limiterOf for a kind that can have a store.
func storableOf[O registry.LimiterOptions](build func(b *registry.Builder, name string, o O) (limiter.Limiter, error)) *limiterKind {
	return &limiterKind{
		options: reflect.TypeFor[O](),
		decode: func(d *decoder, n *document.Node, path string, l *model.Limiter) {
			var o O
			s := d.options(n, reflect.ValueOf(&o), path, nil)
			l.Options = o
			if l.Store != nil && s != nil {
				d.checkStored(o, s, l.Store.Kind())
			}
		},
		build: func(b *registry.Builder, k *Kinds, name string, l *model.Limiter) (limiter.Limiter, error) {
			if l.Store == nil {
				return build(b, name, l.Options.(O))
			}
			s, err := registered[*store.Store](k, model.LimiterStore, l.Store.Name)
			if err != nil {
				return nil, err
			}
			return registry.Shared(b, s, name, l.Options.(O), &l.Store.LimiterOptions), nil
		},
	}
}

// buildInStore is buildPartitioned for a limiter with a store. Each version has its own key function: nothing in the
// process is shared.
func buildInStore(b *registry.Builder, k *Kinds, name string, l *model.Limiter, key func(context.Context) string) (limiter.Limiter, error) {
	s, err := registered[*store.Store](k, model.LimiterStore, l.Store.Name)
	if err != nil {
		return nil, err
	}
	how := &l.Store.LimiterOptions
	var p limiter.Partitioned[string]
	switch each := l.Each.Options.(type) {
	case limiter.TokenBucketOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	case limiter.FixedWindowOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	case limiter.SlidingWindowOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	case limiter.ConcurrencyOptions:
		p = registry.SharedPartitioned(b, s, name, each, how)
	default:
		return nil, fmt.Errorf("a %s has no limiter in a store", l.Each.Kind)
	}
	return &byContext{limiter.Translate(p, key)}, nil
}
