package reload

import (
	"reflect"
	"slices"

	"github.com/weir-go/weir/store"
	"github.com/weir-go/weir/store/backend"
)

// storeField stands beside the kind of a limiter, under limiters and in a rate_limiter alike:
// in-process or not is no matter of the kind, and one line more or less.
const storeField = "store"

// A storeModel says in which store the state of a limiter is, and how that is dealt with.
type storeModel struct {
	Name                 string `yaml:"name"`
	store.LimiterOptions `yaml:",inline"`
	kind                 backend.Kind // of the limiter, or of that for each key; 0: not known
}

// storable are the kinds that can have a store.
var storable = append(slices.Clone(partitionable), "partitioned")

// Validate asks a store. What depends on a kind that is not known it does not see.
func (m storeModel) Validate() error {
	how := m.LimiterOptions
	if m.kind == 0 {
		how.LeaseTTL = 0
	}
	return refusal(storedExample(m.kind), how)
}

// splitStore returns the mapping of a limiter without its store, and that, nil if there is
// none.
func (d *decoder) splitStore(n *node, path string, kinds []string) (rest *node, found *entry) {
	known := append(slices.Clone(kinds), storeField)
	return n.without(func(e entry) bool {
		switch {
		case e.key.text == storeField:
			found = &e
		case slices.Contains(kinds, e.key.text) || nearest(e.key.text, known) != storeField:
			return false
		default:
			d.add(e.key, path, "unknown field %s, did you mean %q?", shortened(e.key.text), storeField)
		}
		return true
	}), found
}

// withoutStore returns the mapping of the limiter for each key, which has no store of its
// own.
func (d *decoder) withoutStore(n *node, path string) *node {
	return n.without(func(e entry) bool {
		is := e.key.text == storeField
		if is {
			d.add(e.key, path, "%s is for all keys: it stands beside partitioned", storeField)
		}
		return is
	})
}

// without returns the mapping without some entries; n itself if there are none.
func (n *node) without(which func(entry) bool) *node {
	var kept []entry
	for _, e := range n.entries {
		if !which(e) {
			kept = append(kept, e)
		}
	}
	if len(kept) == len(n.entries) {
		return n
	}
	rest := *n
	rest.entries = kept
	return &rest
}

// storeAmong decodes the store among the fields of a rate limiter, and says so in more.
func (d *decoder) storeAmong(n *node, path string, more extras) *storeModel {
	more[storeField] = func(*node, string) {} // it is decoded here, before the limiter
	var found *entry
	var limiter entry
	for _, e := range n.entries {
		switch {
		case e.key.text == storeField:
			found = &e
		case limiter.key == nil && (e.key.text == "limiter" || d.kinds.limiter(e.key.text) != nil):
			limiter = e
		}
	}
	return d.storeOf(found, path, limiter)
}

// storeOf decodes the store of a limiter, of which the kind may not be known. It returns nil
// if there is none.
func (d *decoder) storeOf(e *entry, path string, of entry) *storeModel {
	switch {
	case e == nil:
		return nil
	case of.key != nil && of.key.text == "limiter":
		d.add(e.key, path, "%s is for a limiter of its own: a shared one has it under %s", storeField, limitersField)
		return nil
	case of.key != nil && of.key.text == "chain":
		d.add(e.key, path, "a chain has no %s, each of its limiters has its own or none", storeField)
		return nil
	case of.key != nil && !slices.Contains(storable, of.key.text):
		d.add(e.key, path, "%s cannot be in a %s, only %s can", of.key.text, storeField, alternatives(storable))
		return nil
	}
	m := &storeModel{kind: storeKind(of)}
	path = child(path, storeField)
	switch e.value.kind {
	case text:
		m.Name = e.value.text
		d.function(e.value, path, limiterStore)
	case mapping:
		d.options(e.value, reflect.ValueOf(m), path, nil)
	default:
		d.add(e.value, path, "must be the name of a store, or a mapping with its name and options, found %v", e.value)
	}
	return m
}

// storeKind is what a store calls the kind of a limiter.
func storeKind(of entry) backend.Kind {
	if of.key == nil {
		return 0
	}
	if of.key.text == "partitioned" {
		if each := of.value.get("each"); each != nil && len(each.entries) > 0 {
			return storeKind(each.entries[0])
		}
	}
	for k := backend.KindTokenBucket; k <= backend.KindConcurrency; k++ {
		if k.String() == of.key.text {
			return k
		}
	}
	return 0
}

// storedName checks what a limiter that has a store is called there.
func (d *decoder) storedName(at *node, path, name string, l *limiterModel) {
	if l.store != nil && !storedNameOK(name) {
		d.add(at, path, "a limiter with a %s must have a name of at most 200 ASCII letters, digits and ._-/, found %s", storeField, shortened(name))
	}
}
