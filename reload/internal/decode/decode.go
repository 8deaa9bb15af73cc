// Package decode turns the nodes of a document into a [model.File], and finds everything that is wrong with them.
//
//   - decode.go: File. It first decodes the sections, which can give names, then each limiter, budget and pipeline
//     by itself, and then resolves the names.
//   - limiter.go, store.go, strategy.go: the values.
//   - options.go, scalar.go: the kind that a mapping has, and its options as a struct.
//   - validate.go: where the file has the field that a Validate method refuses.
//   - reference.go, chain.go: the names that the file gives to limiters, budgets and pipelines, and where it uses them.
//   - registryname.go: the names that the registry gives to limiters and circuit breakers.
//   - section.go: the top-level fields of the program.
package decode

import (
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// File decodes a document. found are the problems that reading the document has found; File returns them with its own.
// The file is only valid if there are none.
func File(root *document.Node, found document.Problems, k *model.Kinds) (*model.File, document.Problems) {
	d := &decoder{
		Problems: found,
		kinds:    k,
		file:     &model.File{PipelinesAt: document.Place{Line: root.Line, Column: root.Column, Path: model.PipelinesField}},
		places:   make(map[any]document.Place),
		nodes:    make(map[any]*document.Node),
	}
	d.decodeFile(root)
	return d.file, d.Problems
}

// A decoder goes on after a problem, to find all of them.
type decoder struct {
	document.Problems
	document.Suggester
	kinds *model.Kinds
	file  *model.File
	// places has the place of the name of each *model.Limiter and *model.Pipeline.
	places map[any]document.Place
	// nodes has the options of each *model.Strategy, and the list of names of each *model.Limiter that is a chain.
	nodes map[any]*document.Node
	// sections are the sections of the file, and section is the one that is being decoded, or nil.
	sections []*section
	section  *section
	// complete is set if the file is for a program that is known as a whole, see [model.SectionKind].
	complete bool
}

func (d *decoder) decodeFile(root *document.Node) {
	if root.Kind != document.Mapping {
		d.Add(root, "a file must be a mapping with %s, found %v", d.mainField(), root)
		return
	}
	d.decodeSections(root)
	for _, e := range root.Entries {
		field := e.Key.Text
		if d.kinds.OnlySections && slices.Contains(model.OwnFields, field) {
			field = "" // not one of this file
		}
		switch field {
		case model.LimitersField:
			d.decodeNamed(e.Value, "limiters", d.decodeSharedLimiter)
		case model.BudgetsField:
			d.decodeNamed(e.Value, "budgets", d.decodeBudget)
		case model.PipelinesField:
			d.file.PipelinesAt = e.Place()
			d.decodeNamed(e.Value, "pipelines", d.decodePipeline)
		case model.SchemaField:
			if e.Value.Kind != document.Text {
				d.Add(e.Value, "must be text, the address of the schema, found %v", e.Value)
			}
		case model.AllowEmptyField:
			if e.Value.Kind != document.Boolean {
				d.Add(e.Value, "must be true or false, found %v", e.Value)
			}
		default:
			d.decodeOther(e)
		}
	}
	d.resolveReferences()
	d.resolveSections()
	d.checkRegistryNames()
	d.checkEmpty(root)
	d.checkSections()
}

// mainField returns a field that files have.
func (d *decoder) mainField() string {
	if !d.kinds.OnlySections {
		return model.PipelinesField
	}
	return strings.Join(slices.Sorted(maps.Keys(d.kinds.Sections)), ", ")
}

// decodeOther accepts a top-level field that is no field of weir's: a section, or one that is ignored.
func (d *decoder) decodeOther(e document.Entry) {
	known := slices.Sorted(maps.Keys(d.kinds.Sections))
	if !d.kinds.OnlySections {
		known = append(known, model.OwnFields...)
	}
	_, section := d.kinds.Sections[e.Key.Text]
	if !section && !strings.HasPrefix(e.Key.Text, model.IgnoredPrefix) && !d.acceptsUnknown(e.Key.Text, known) {
		d.unknownField(e.Key, known...)
	}
}

// maxNames bounds the number of limiters, of budgets and of pipelines in a file.
const maxNames = 10_000

// decodeNamed decodes a mapping of names to limiters, budgets or pipelines.
func (d *decoder) decodeNamed(n *document.Node, what string, decode func(document.Entry)) {
	if n.Kind != document.Mapping {
		d.Add(n, "must be a mapping of names to %s, found %v", what, n)
		return
	}
	if len(n.Entries) > maxNames {
		d.Add(n.Entries[maxNames].Key, "there are %d %s, a file has at most %d", len(n.Entries), what, maxNames)
	}
	for _, e := range n.Entries {
		d.checkNameLength(e.Key)
		decode(e)
	}
}

func (d *decoder) checkNameLength(name *document.Node) {
	if len(name.Text) > document.MaxName {
		d.Add(name, "the name %s has %d bytes, must have at most %d", document.Quoted(name.Text), len(name.Text), document.MaxName)
	}
}

func (d *decoder) unknownField(key *document.Node, known ...string) {
	d.Add(key, "unknown field %s, %s", document.Quoted(key.Text), d.Instead(key.Text, known, "there are none here"))
}

// checkEmpty refuses a file without pipelines, unless that is allowed: a file that was cut off or is being written
// would remove everything.
func (d *decoder) checkEmpty(root *document.Node) {
	if d.kinds.OnlySections {
		return
	}
	if p := root.Get(model.PipelinesField); p != nil && (p.Kind != document.Mapping || len(p.Entries) > 0) {
		return // it has a problem already, or is not empty
	}
	if slices.ContainsFunc(root.Entries, d.hasPipelines) {
		return
	}
	if allowed := root.Get(model.AllowEmptyField); allowed != nil && !strings.EqualFold(allowed.Text, "false") {
		return
	}
	d.Add(root, "the file has no %s; if that is meant, add %s: true", model.PipelinesField, model.AllowEmptyField)
}

func (d *decoder) decodeBudget(e document.Entry) {
	b := &model.Budget{Name: e.Key.Text}
	d.decodeOptions(e.Value, reflect.ValueOf(&b.Options))
	d.file.Budgets = append(d.file.Budgets, b)
}
