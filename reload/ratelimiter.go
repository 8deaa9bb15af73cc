package reload

import (
	"context"
	"reflect"

	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/registry"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/strategies/adaptive"
	"github.com/weir-go/weir/strategies/ratelimit"
)

// decodeRateLimiter decodes the options, and the limiter, which is written among them.
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

// acceptLimiters makes unknown fields kinds of limiters, if AcceptUnknown applies to them.
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
