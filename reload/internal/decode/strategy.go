package decode

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

func (d *decoder) decodePipeline(e document.Entry) {
	const field = "strategies"
	p := &model.Pipeline{Name: e.Key.Text}
	d.places[p] = e.Place()
	d.file.Pipelines = append(d.file.Pipelines, p)
	if e.Value.Kind != document.Mapping {
		d.Add(e.Value, "must be a mapping with %s, found %v", field, e.Value)
		return
	}
	for _, of := range e.Value.Entries {
		if of.Key.Text != field {
			d.unknownField(of.Key, field)
		}
	}
	switch list := e.Value.Get(field); {
	case list == nil:
		d.Add(e.Value, "%s is missing: a list, outermost first", field)
	case list.Kind != document.List:
		d.Add(list, "must be a list of strategies, outermost first, found %v", list)
	default:
		d.decodeStrategies(list, p)
	}
}

// decodeStrategies decodes the strategies of p. It refuses two of the same name, which telemetry could not tell apart
// and for which the registry would keep the same limiter.
func (d *decoder) decodeStrategies(list *document.Node, p *model.Pipeline) {
	first := make(map[string]*document.Node)
	kinds := d.kinds.StrategyNames()
	for _, item := range list.Items {
		e, ok := d.oneKind(item, "strategy", kinds)
		if !ok {
			continue
		}
		s := d.decodeStrategy(e)
		p.Strategies = append(p.Strategies, s)
		p.Places = append(p.Places, e.Place())
		if s.Name == "" {
			continue // its kind has no names
		}
		at := e.Place()
		if name := e.Value.Get("name"); name != nil {
			if name.Kind != document.Text {
				continue // it has no valid name
			}
			d.checkNameLength(name)
			at = name.Place()
		}
		if before := first[s.Name]; before != nil {
			d.AddAt(at, "the pipeline has a strategy called %s already, in line %d; give this one another name", document.Quoted(s.Name), before.Line)
		} else {
			first[s.Name] = e.Key
		}
	}
}

func (d *decoder) decodeStrategy(e document.Entry) *model.Strategy {
	s := &model.Strategy{Kind: e.Key.Text}
	kind, known := d.kinds.Strategies[s.Kind]
	if !known { // AcceptUnknown
		return s
	}
	d.nodes[s] = e.Value
	v := reflect.New(kind.Options)
	if s.Kind == model.RateLimiterKind {
		d.decodeRateLimiter(e.Value, v, s)
	} else {
		d.decodeOptions(e.Value, v)
	}
	s.Options = v.Elem().Interface()
	s.Name, s.DefaultName = kind.NameOf(s.Options), kind.DefaultName
	return s
}

// decodeRateLimiter decodes the options of a rate_limiter into v, and the limiter and its store, which a file writes
// among the options, into s.
func (d *decoder) decodeRateLimiter(n *document.Node, v reflect.Value, s *model.Strategy) {
	fields := append(d.kinds.LimiterNames(), model.StoreField)
	known := slices.Clone(fields)
	for _, f := range model.FieldsOf(v.Elem().Type()) {
		known = append(known, f.Name)
	}
	var limiters []document.Entry
	var stored document.Entry // the limiter that a store is for
	rest := n.Without(func(e document.Entry) bool {
		own := slices.Contains(fields, e.Key.Text) || d.acceptsUnknown(e.Key.Text, known)
		if e.Key.Text == model.LimiterField || own && e.Key.Text != model.StoreField {
			limiters = append(limiters, e)
			if stored.Key == nil && slices.Contains(known, e.Key.Text) {
				stored = e
			}
		}
		return own
	})
	store := d.decodeStore(n, stored)
	for _, e := range limiters {
		if e.Key.Text != model.LimiterField {
			s.Limiter = d.decodeLimiter(e, store)
		}
	}
	d.decodeOptions(rest, v, fields...)
	switch {
	case n.Kind != document.Mapping:
	case len(limiters) == 0:
		d.Add(n, "the limiter is missing: one of %s", document.OneOf(append([]string{model.LimiterField}, d.kinds.LimiterNames()...)))
	case len(limiters) > 1:
		d.Add(limiters[1].Key, "%s is a second limiter, after %s; use a chain for several limiters", limiters[1].Key.Text, limiters[0].Key.Text)
	}
}
