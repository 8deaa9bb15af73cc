package reload

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// splitStore returns the mapping of a limiter without its store, and the store; nil: it has none.
func (d *decoder) splitStore(n *document.Node, path string, kinds []string) (rest *document.Node, found *document.Entry) {
	known := append(slices.Clone(kinds), model.StoreField)
	return n.Without(func(e document.Entry) bool {
		switch {
		case e.Key.Text == model.StoreField:
			found = &e
		case slices.Contains(kinds, e.Key.Text) || document.Nearest(e.Key.Text, known) != model.StoreField:
			return false
		default:
			d.Add(e.Key, path, "unknown field %s, did you mean %q?", document.Quoted(e.Key.Text), model.StoreField)
		}
		return true
	}), found
}

// withoutStore returns the mapping of the limiter for each key, which cannot have a store of its own.
func (d *decoder) withoutStore(n *document.Node, path string) *document.Node {
	return n.Without(func(e document.Entry) bool {
		is := e.Key.Text == model.StoreField
		if is {
			d.Add(e.Key, path, "%s is for all keys: it stands beside partitioned", model.StoreField)
		}
		return is
	})
}

// storeAmong decodes the store among the fields of a rate limiter, and adds the field to more.
func (d *decoder) storeAmong(n *document.Node, path string, more extras) *model.Store {
	more[model.StoreField] = func(*document.Node, string) {} // decoded below, before the limiter
	var found *document.Entry
	var limiter document.Entry
	for _, e := range n.Entries {
		switch {
		case e.Key.Text == model.StoreField:
			found = &e
		case limiter.Key == nil && (e.Key.Text == "limiter" || d.kinds.limiter(e.Key.Text) != nil):
			limiter = e
		}
	}
	return d.storeOf(found, path, limiter)
}

// storeOf decodes the store of a limiter, whose kind can be unknown. It returns nil if there is none.
func (d *decoder) storeOf(e *document.Entry, path string, of document.Entry) *model.Store {
	switch {
	case e == nil:
		return nil
	case of.Key != nil && of.Key.Text == "limiter":
		d.Add(e.Key, path, "%s is for a limiter of its own: a shared one has it under %s", model.StoreField, model.LimitersField)
		return nil
	case of.Key != nil && of.Key.Text == "chain":
		d.Add(e.Key, path, "a chain has no %s, each of its limiters has its own or none", model.StoreField)
		return nil
	case of.Key != nil && !slices.Contains(model.Storable, of.Key.Text):
		d.Add(e.Key, path, "%s cannot be in a %s, only %s can", of.Key.Text, model.StoreField, document.Alternatives(model.Storable))
		return nil
	}
	m := model.NewStore(storeKind(of))
	path = document.Child(path, model.StoreField)
	switch e.Value.Kind {
	case document.Text:
		m.Name = e.Value.Text
		d.function(e.Value, path, model.LimiterStore)
	case document.Mapping:
		d.options(e.Value, reflect.ValueOf(m), path, nil)
	default:
		d.Add(e.Value, path, "must be the name of a store, or a mapping with its name and options, found %v", e.Value)
	}
	return m
}

// storeKind returns a store's name for the kind of a limiter.
func storeKind(of document.Entry) backend.Kind {
	if of.Key == nil {
		return 0
	}
	if of.Key.Text == "partitioned" {
		if each := of.Value.Get("each"); each != nil && len(each.Entries) > 0 {
			return storeKind(each.Entries[0])
		}
	}
	for k := backend.KindTokenBucket; k <= backend.KindConcurrency; k++ {
		if k.String() == of.Key.Text {
			return k
		}
	}
	return 0
}

// storedName checks the name of a limiter that has a store.
func (d *decoder) storedName(at *document.Node, path, name string, l *model.Limiter) {
	if l.Store != nil && !model.StoredName(name) {
		d.Add(at, path, "a limiter with a %s must have a name of at most 200 ASCII letters, digits and ._-/, found %s", model.StoreField, document.Quoted(name))
	}
}

// checkStored adds what a store says of the options of a limiter. A store does not look at options that are invalid
// in themselves; then each field is checked on its own, to find everything at once.
func (d *decoder) checkStored(o interface{ Validate() error }, s *structure, k backend.Kind) {
	if o.Validate() == nil {
		if err := model.CheckStored(o, store.LimiterOptions{}); err != nil {
			d.invalid(err, s)
		}
		return
	}
	from := reflect.ValueOf(o)
	for i := range from.NumField() {
		one := reflect.New(from.Type()).Elem()
		one.Set(reflect.ValueOf(model.StoredExample(k)))
		one.Field(i).Set(from.Field(i))
		if one.Interface().(interface{ Validate() error }).Validate() != nil {
			continue
		}
		if err := model.CheckStored(one.Interface(), store.LimiterOptions{}); err != nil {
			d.invalid(err, s)
		}
	}
}

// noPartitions refuses options of a partitioned limiter that have no meaning in a store.
func (d *decoder) noPartitions(l *model.Limiter, s *structure) {
	if l.Store == nil || s == nil {
		return
	}
	for _, field := range []string{"idle_timeout", "max_partitions"} {
		if at := s.values[field]; at != nil {
			d.Add(at, document.Child(s.path, field), "%s means nothing in a %s, where a key that is not in use costs nothing: leave it out", field, model.StoreField)
		}
	}
}
