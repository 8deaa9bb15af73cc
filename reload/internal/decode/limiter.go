package decode

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
)

// A decoder decodes a file.
type decoder struct {
	mapper
	// limiters and strategies are the names of the kinds.
	limiters, strategies []string

	file *model.File
	// nodes has the entry of each *model.Pipeline, the options of each *model.Strategy, and the list of names of each
	// *model.Limiter that is a chain.
	nodes    map[any]*document.Node
	sections []*section
	// unknown is set if the file has a top-level field that may be a section of a program, see AcceptUnknown.
	unknown bool
}

// decodeSharedLimiter decodes an entry of the limiters of the file: a mapping of one kind to its options, with or
// without a store.
func (d *decoder) decodeSharedLimiter(e *document.Node) {
	kind := d.oneKind(e, "limiter", d.limiters, model.StoreField)
	l := &model.Limiter{} // if its kind is unknown, chains and rate limiters can still name it
	if store := d.decodeStore(e, kind); kind != nil {
		l = d.decodeLimiter(kind, store)
	}
	l.Name = e.Key.Value
	d.checkStoredName(e, l.Name, l)
	d.file.Limiters = append(d.file.Limiters, l)
}

// decodeLimiter decodes the options of a limiter of a kind.
func (d *decoder) decodeLimiter(kind *document.Node, stored *model.Store) *model.Limiter {
	l := &model.Limiter{Kind: kind.Key.Value, Store: stored}
	switch options, known := d.kinds.Limiters[l.Kind]; {
	case !known: // AcceptUnknown
	case l.Kind == model.ChainKind:
		d.decodeChain(kind, l)
	case l.Kind == model.PartitionedKind:
		d.decodePartitioned(kind, l)
	default:
		v := reflect.New(options)
		s := d.decodeOptions(kind, v)
		l.Options = v.Elem().Interface()
		if o, ok := l.Options.(limiter.Options); ok && stored != nil && s != nil { // what Validate refuses as well is reported once
			d.addInvalid(model.CheckStored(o, store.LimiterOptions{}), s)
		}
	}
	l.Given = d.file.Names.From(l.Options)
	if stored != nil {
		l.Given = append(l.Given, d.file.Names.From(*stored)...)
	}
	return l
}

// decodeChain decodes a list of names of shared limiters, which resolveReferences looks up.
func (d *decoder) decodeChain(n *document.Node, l *model.Limiter) {
	if n.Tag != document.List || len(n.Content) == 0 {
		found := n.String()
		if n.Tag == document.List {
			found = "an empty list"
		}
		d.Add(n, "must be a list of the names of limiters, found %s", found)
		return
	}
	d.nodes[l] = n
	seen := make(map[string]bool)
	for item := range n.Children() {
		switch {
		case item.Tag != document.Text:
			d.Add(item, "must be the name of a limiter, found %v", item)
		case seen[item.Value]:
			d.Add(item, "the limiter %s is in the chain already", document.Quoted(item.Value))
		}
		seen[item.Value] = true
	}
}

// eachField is the field of a partitioned limiter that has the limiter of each key.
const eachField = "each"

func (d *decoder) decodePartitioned(n *document.Node, l *model.Limiter) {
	each := n.Get(eachField)
	if each != nil {
		if own := each.Get(model.StoreField); own != nil {
			d.Add(document.Key{Node: own}, "%s is for all keys: it must be beside partitioned, not inside each", model.StoreField)
		}
		if kind := d.oneKind(each, eachName, model.Partitionable, model.StoreField); kind != nil {
			l.Each = d.decodeLimiter(kind, l.Store)
		}
	}
	var o model.PartitionedOptions
	d.decodeOptions(n, reflect.ValueOf(&o), eachField)
	l.Options = o
	if n.Tag == document.Mapping && each == nil {
		d.Add(n, "each is missing: a limiter for every key, one of %s", document.OneOf(model.Partitionable))
	}
	if l.Store == nil {
		return
	}
	for _, field := range []string{"idle_timeout", "max_partitions"} {
		if at := n.Get(field); at != nil {
			d.Add(at, "%s has no effect with a %s, which does not keep unused keys: leave it out", field, model.StoreField)
		}
	}
}

// decodeRateLimiter decodes the options of a rate_limiter into v, and the limiter and its store, which a file writes
// among the options, into s.
func (d *decoder) decodeRateLimiter(n *document.Node, v reflect.Value, s *model.Strategy) {
	own := append(slices.Clone(d.limiters), model.StoreField) // the fields that are not options
	known := slices.Clone(own)
	for _, f := range model.FieldsOf(v.Elem().Type()) {
		known = append(known, f.Name)
	}
	var limiters []*document.Node
	if n.Tag == document.Mapping {
		for e := range n.Children() {
			kind := e.Key.Value
			if d.acceptsUnknown(kind, known) {
				own = append(own, kind)
			}
			if kind == model.LimiterField || kind != model.StoreField && slices.Contains(own, kind) {
				limiters = append(limiters, e)
			}
		}
	}
	var first *document.Node // the limiter that a store is for
	if i := slices.IndexFunc(limiters, func(e *document.Node) bool { return slices.Contains(known, e.Key.Value) }); i >= 0 {
		first = limiters[i]
	}
	stored := d.decodeStore(n, first)
	for _, e := range limiters {
		if e.Key.Value != model.LimiterField {
			s.Limiter = d.decodeLimiter(e, stored)
		}
	}
	d.decodeOptions(n, v, own...)
	switch {
	case n.Tag != document.Mapping:
	case len(limiters) == 0:
		d.Add(n, "the limiter is missing: one of %s", document.OneOf(append([]string{model.LimiterField}, d.limiters...)))
	case len(limiters) > 1:
		d.Add(document.Key{Node: limiters[1]}, "%s is a second limiter, after %s; use a chain for several limiters", limiters[1].Key.Value, limiters[0].Key.Value)
	}
}

// decodeStore decodes the store in the mapping n of a limiter, and returns nil if n has none. kind is the entry of n
// that has the limiter, or nil.
func (d *decoder) decodeStore(n, kind *document.Node) *model.Store {
	e := n.Get(model.StoreField)
	if e == nil {
		return nil
	}
	stored := "" // the kind of the limiter that is in the store
	if kind != nil {
		stored = kind.Key.Value
	}
	switch {
	case stored == model.LimiterField:
		d.Add(document.Key{Node: e}, "%s cannot be beside the name of a shared limiter: write it with that limiter, under %s", model.StoreField, model.LimitersField)
		return nil
	case stored == model.ChainKind:
		d.Add(document.Key{Node: e}, "a chain has no %s, each of its limiters has its own or none", model.StoreField)
		return nil
	case kind != nil && !slices.Contains(model.Storable, stored):
		d.Add(document.Key{Node: e}, "%s cannot be in a %s, only %s can", stored, model.StoreField, document.Alternatives(model.Storable))
		return nil
	case stored == model.PartitionedKind:
		stored = ""
		if each := kind.Get(eachField); each != nil && each.Tag == document.Mapping && len(each.Content) > 0 {
			stored = each.Content[0].Value
		}
	}
	m := &model.Store{}
	switch e.Tag {
	case document.Text:
		m.Name = e.Value
		d.checkFunction(e, model.LimiterStore)
	case document.Mapping:
		if s := d.decodeOptions(e, reflect.ValueOf(m)); s != nil {
			d.addInvalid(m.Check(stored), s)
		}
	default:
		d.Add(e, "must be the name of a store, or a mapping with its name and options, found %v", e)
	}
	return m
}

// checkStoredName checks the name of a limiter that has a store. at is its entry.
func (d *mapper) checkStoredName(at *document.Node, name string, l *model.Limiter) {
	if l.Store != nil && !model.StorableName(name) {
		d.Add(document.Entry{Node: at}, "a limiter with a %s must have a name of at most 200 ASCII letters, digits and ._-/, found %s", model.StoreField, document.Quoted(name))
	}
}
