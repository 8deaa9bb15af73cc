package decode

import (
	"reflect"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// decodeSharedLimiter decodes an entry of the limiters of the file: a mapping of one kind to its options, with or
// without a store.
func (d *decoder) decodeSharedLimiter(e document.Entry) {
	kinds := d.kinds.LimiterNames()
	kind, ok := d.oneKind(d.withoutStore(e.Value, kinds), "limiter", kinds)
	store := d.decodeStore(e.Value, kind)
	l := &model.Limiter{} // if its kind is unknown, chains and rate limiters can still name it
	if ok {
		l = d.decodeLimiter(kind, store)
	}
	l.Name = e.Key.Text
	d.places[l] = e.Place()
	d.checkStoredName(e.Place(), l.Name, l)
	d.file.Limiters = append(d.file.Limiters, l)
}

// decodeLimiter decodes the options of a limiter of a kind.
func (d *decoder) decodeLimiter(kind document.Entry, store *model.Store) *model.Limiter {
	l := &model.Limiter{Kind: kind.Key.Text, Store: store}
	switch options, known := d.kinds.Limiters[l.Kind]; {
	case !known: // AcceptUnknown
	case l.Kind == model.ChainKind:
		d.decodeChain(kind.Value, l)
	case l.Kind == model.PartitionedKind:
		d.decodePartitioned(kind.Value, l)
	default:
		v := reflect.New(options)
		s := d.decodeOptions(kind.Value, v)
		l.Options = v.Elem().Interface()
		if o, ok := l.Options.(limiter.Options); ok && store != nil && s != nil {
			d.checkStored(o, s)
		}
	}
	return l
}

// decodeChain decodes a list of names of shared limiters, which resolveReferences looks up.
func (d *decoder) decodeChain(n *document.Node, l *model.Limiter) {
	if n.Kind != document.List || len(n.Items) == 0 {
		found := n.String()
		if n.Kind == document.List {
			found = "an empty list"
		}
		d.Add(n, "must be a list of the names of limiters, found %s", found)
		return
	}
	d.nodes[l] = n
	seen := make(map[string]bool)
	for _, item := range n.Items {
		switch {
		case item.Kind != document.Text:
			d.Add(item, "must be the name of a limiter, found %v", item)
		case seen[item.Text]:
			d.Add(item, "the limiter %s is in the chain already", document.Quoted(item.Text))
		}
		seen[item.Text] = true
	}
}

const (
	eachField = "each"                 // the field of a partitioned limiter that has the limiter of each key
	eachName  = "limiter for each key" // what messages call the limiter of each key
)

func (d *decoder) decodePartitioned(n *document.Node, l *model.Limiter) {
	each := n.Get(eachField)
	if each != nil {
		l.Each = d.decodeEach(each, l.Store)
	}
	var o model.PartitionedOptions
	d.decodeOptions(n.Without(func(e document.Entry) bool { return e.Value == each }), reflect.ValueOf(&o), eachField)
	l.Options = o
	if n.Kind != document.Mapping {
		return
	}
	if each == nil {
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

// decodeEach decodes the limiter that a partitioned limiter has for each key. store is the partitioned limiter's.
func (d *decoder) decodeEach(n *document.Node, store *model.Store) *model.Limiter {
	if own := n.Entry(model.StoreField); own != nil {
		d.Add(own.Key, "%s is for all keys: it must be beside partitioned, not inside each", model.StoreField)
		n = n.Without(func(e document.Entry) bool { return e == *own })
	}
	kind, ok := d.oneKind(n, eachName, model.Partitionable)
	if !ok {
		return nil
	}
	return d.decodeLimiter(kind, store)
}
