package decode

import (
	"errors"
	"reflect"
	"slices"

	"github.com/weir-go/weir"
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
	if stored := d.decodeStore(e, kind); kind != nil {
		l = d.decodeLimiter(kind, stored)
	}
	l.Name = e.Key.Value
	d.checkStoredName(e, l.Name, l)
	d.file.Limiters = append(d.file.Limiters, l)
}

// decodeLimiter decodes the options of a limiter of a kind.
func (d *decoder) decodeLimiter(kind *document.Node, in storage) *model.Limiter {
	l := &model.Limiter{Kind: kind.Key.Value, Store: in.Store}
	switch options, known := d.kinds.Limiters[l.Kind]; {
	case !known: // AcceptUnknown
	case l.Kind == model.ChainKind:
		d.decodeChain(kind, l)
	case l.Kind == model.PartitionedKind:
		d.decodePartitioned(kind, l, in)
	case options == nil:
		d.Add(kind.OfKey(), "%s", model.MissingImport("a limiter of kind "+l.Kind))
	default:
		v := reflect.New(options)
		s := d.decodeOptions(kind, v)
		l.Options = v.Elem().Interface()
		if o, ok := l.Options.(limiter.Options); ok && s != nil {
			d.checkStored(o, s, in)
		}
	}
	l.Given = d.file.Names.From(l.Options)
	if l.Store != nil {
		l.Given = append(l.Given, d.file.Names.From(*l.Store)...)
	}
	return l
}

// A storage is the store of a limiter, or nil, and the mapping that it was decoded from, if it was one.
type storage struct {
	*model.Store

	options *structure
}

// checkStored adds what a store refuses about the options of a limiter, which were decoded from s, or about its own. What Validate
// refuses as well is reported once.
func (d *mapper) checkStored(o limiter.Options, s *structure, in storage) {
	if in.Store == nil {
		return
	}
	wrong, _ := errors.AsType[*weir.OptionsError](store.Check("any", o, &in.LimiterOptions))
	if wrong == nil {
		return
	}
	for _, f := range wrong.Fields {
		if in.options != nil && byGoName(model.FieldsOf(in.options.typ), f.Path) != nil {
			d.addInvalidField(f, in.options)
		} else {
			d.addInvalidField(f, s)
		}
	}
}

// decodeChain decodes a list of names of shared limiters, which resolveReferences looks up.
func (d *decoder) decodeChain(n *document.Node, l *model.Limiter) {
	if n.Tag != document.List || len(n.Content) == 0 {
		found := n.String()
		if n.Tag == document.List {
			found = "an empty list"
		}
		d.Add(n.Place(), "must be a list of the names of limiters, found %s", found)
		return
	}
	d.nodes[l] = n
	seen := make(map[string]bool)
	for _, item := range n.Content {
		switch {
		case item.Tag != document.Text:
			d.Add(item.Place(), "must be the name of a limiter, found %v", item)
		case seen[item.Value]:
			d.Add(item.Place(), "the limiter %s is in the chain already", document.Quoted(item.Value))
		}
		seen[item.Value] = true
	}
}

// eachField is the field of a partitioned limiter that has the limiter of each key.
const eachField = "each"

func (d *decoder) decodePartitioned(n *document.Node, l *model.Limiter, in storage) {
	each := n.Get(eachField)
	if each != nil {
		if kind := d.oneKind(each, eachName, model.Partitionable); kind != nil {
			l.Each = d.decodeLimiter(kind, in)
		}
	}
	var o model.PartitionedOptions
	d.decodeOptions(n, reflect.ValueOf(&o), eachField)
	l.Options = o
	if n.Tag == document.Mapping && each == nil {
		d.Add(n.Place(), "each is missing: a limiter for every key, one of %s", document.OneOf(model.Partitionable))
	}
	if l.Store == nil {
		return
	}
	for _, field := range []string{"idle_timeout", "max_partitions"} {
		if at := n.Get(field); at != nil {
			d.Add(at.Place(), "%s has no effect with a %s, which does not keep unused keys: leave it out", field, model.StoreField)
		}
	}
}

// decodeRateLimiter decodes the options of a rate_limiter into v, and the limiter and its store, which a file writes
// among the options, into s.
func (d *decoder) decodeRateLimiter(n *document.Node, v reflect.Value, s *model.Strategy) {
	if n.Tag != document.Mapping {
		d.decodeOptions(n, v)
		return
	}
	also := []string{model.StoreField}
	for _, f := range model.FieldsOf(v.Elem().Type()) {
		if f.Name != model.LimiterField {
			also = append(also, f.Name)
		}
	}
	kind := d.oneKind(n, "limiter", append([]string{model.LimiterField}, d.limiters...), also...)
	stored := d.decodeStore(n, kind)
	if kind != nil && kind.Key.Value != model.LimiterField {
		s.Limiter = d.decodeLimiter(kind, stored)
	}
	d.decodeOptions(n, v, n.Keys()...) // oneKind has refused unknown ones
}

// decodeStore decodes the store in the mapping n of a limiter, if n has one. kind is the entry of n that has the limiter, or nil.
func (d *decoder) decodeStore(n, kind *document.Node) (in storage) {
	e := n.Get(model.StoreField)
	switch {
	case e == nil:
		return in
	case kind != nil && !slices.Contains(model.Storable, kind.Key.Value):
		d.Add(e.OfKey(), "%s cannot be beside %s, only beside %s", model.StoreField, kind.Key.Value, document.Alternatives(model.Storable))
		return in
	}
	in.Store = &model.Store{}
	switch e.Tag {
	case document.Text:
		in.Name = e.Value
		d.checkFunction(e, model.LimiterStore)
	case document.Mapping:
		in.options = d.decodeOptions(e, reflect.ValueOf(in.Store))
	default:
		d.Add(e.Place(), "must be the name of a store, or a mapping with its name and options, found %v", e)
	}
	return in
}

// checkStoredName checks the name of a limiter that has a store. at is its entry.
func (d *mapper) checkStoredName(at *document.Node, name string, l *model.Limiter) {
	if l.Store != nil && !model.StorableName(name) {
		d.Add(at.AtKey(), "a limiter with a %s must have a name of at most 200 ASCII letters, digits and ._-/, found %s", model.StoreField, document.Quoted(name))
	}
}
