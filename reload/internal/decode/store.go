package decode

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
)

// withoutStore returns the mapping of a shared limiter without its store. It adds a problem if "store" is misspelt.
func (d *decoder) withoutStore(n *document.Node, kinds []string) *document.Node {
	known := append(slices.Clone(kinds), model.StoreField)
	return n.Without(func(e document.Entry) bool {
		if e.Key.Text == model.StoreField {
			return true
		}
		misspelt := !slices.Contains(kinds, e.Key.Text) && document.Nearest(e.Key.Text, known) == model.StoreField
		if misspelt {
			d.Add(e.Key, "unknown field %s, did you mean %q?", document.Quoted(e.Key.Text), model.StoreField)
		}
		return misspelt
	})
}

// decodeStore decodes the store in the mapping n of a limiter, and returns nil if n has none. kind is the entry of n
// that has the limiter; it is empty if the kind is unknown.
func (d *decoder) decodeStore(n *document.Node, kind document.Entry) *model.Store {
	e := n.Entry(model.StoreField)
	if e == nil {
		return nil
	}
	if kind.Key != nil && !slices.Contains(model.Storable, kind.Key.Text) {
		switch of := kind.Key.Text; of {
		case model.LimiterField:
			d.Add(e.Key, "%s cannot be beside the name of a shared limiter: write it with that limiter, under %s", model.StoreField, model.LimitersField)
		case model.ChainKind:
			d.Add(e.Key, "a chain has no %s, each of its limiters has its own or none", model.StoreField)
		default:
			d.Add(e.Key, "%s cannot be in a %s, only %s can", of, model.StoreField, document.Alternatives(model.Storable))
		}
		return nil
	}
	m := &model.Store{}
	switch e.Value.Kind {
	case document.Text:
		m.Name = e.Value.Text
		d.checkFunction(e.Value, model.LimiterStore)
	case document.Mapping:
		if s := d.decodeOptions(e.Value, reflect.ValueOf(m)); s != nil {
			d.addInvalid(m.Check(storedKind(kind)), s)
		}
	default:
		d.Add(e.Value, "must be the name of a store, or a mapping with its name and options, found %v", e.Value)
	}
	return m
}

// storedKind returns the kind of the limiter that is in the store. For a partitioned limiter, this is the kind of the
// limiter of each key. It returns "" if the kind is unknown.
func storedKind(kind document.Entry) string {
	switch {
	case kind.Key == nil:
		return ""
	case kind.Key.Text != model.PartitionedKind:
		return kind.Key.Text
	}
	if each := kind.Value.Get(eachField); each != nil && len(each.Entries) > 0 {
		return each.Entries[0].Key.Text
	}
	return ""
}

// checkStoredName checks the name of a limiter that has a store.
func (d *decoder) checkStoredName(at document.Place, name string, l *model.Limiter) {
	if l.Store != nil && !model.StorableName(name) {
		d.AddAt(at, "a limiter with a %s must have a name of at most 200 ASCII letters, digits and ._-/, found %s", model.StoreField, document.Quoted(name))
	}
}

// checkStored adds the problems for which a store refuses the options of a limiter. [model.CheckStored] needs options
// that are valid in the process. If the options are not, checkStored checks each field with valid values for all others,
// so that all problems are reported at once.
func (d *decoder) checkStored(options limiter.Options, s *structure) {
	if validate(options) == nil {
		d.addInvalid(model.CheckStored(options, store.LimiterOptions{}), s)
		return
	}
	from := reflect.ValueOf(options)
	for i := range from.NumField() {
		one := reflect.New(from.Type()).Elem()
		one.Set(reflect.ValueOf(limiter.OptionsOf(rate.Example(options.Limits().Kind))))
		one.Field(i).Set(from.Field(i))
		if validate(one.Interface()) == nil {
			d.addInvalid(model.CheckStored(one.Interface().(limiter.Options), store.LimiterOptions{}), s)
		}
	}
}
