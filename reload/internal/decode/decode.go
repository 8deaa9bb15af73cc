// Package decode turns the nodes of a document into a [model.File], and finds everything that is wrong with them.
//
//   - decode.go: File. It first decodes the sections, which can give names, then each limiter, budget and pipeline
//     by itself, and then resolves the names.
//   - options.go: the kind that a mapping has, the walk over the fields of a struct, and where the file has the field that
//     a Validate method refuses.
//   - limiter.go: limiters, chains, stores.
//   - reference.go: the names that the file gives to limiters, budgets and pipelines, and where it uses them.
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
		Problems:   found,
		kinds:      k,
		limiters:   slices.Sorted(maps.Keys(k.Limiters)),
		strategies: slices.Sorted(maps.Keys(k.Strategies)),
		file:       &model.File{PipelinesAt: document.Place{Line: root.Line, Column: root.Column, Path: model.PipelinesField}},
		nodes:      make(map[any]*document.Node),
	}
	d.decodeFile(root)
	return d.file, d.Problems
}

// A decoder goes on after a problem, to find all of them.
type decoder struct {
	document.Problems
	document.Suggester
	kinds *model.Kinds
	// limiters and strategies are the names of the kinds.
	limiters, strategies []string

	file *model.File
	// nodes has the entry of each *model.Pipeline, the options of each *model.Strategy, and the list of names of each
	// *model.Limiter that is a chain.
	nodes map[any]*document.Node
	// sections are the sections of the file, and section is the one that is being decoded, or nil.
	sections []*section
	section  *section
	// unknown is set if the file has a top-level field that may be a section of a program, see AcceptUnknown.
	unknown bool
}

func (d *decoder) decodeFile(root *document.Node) {
	if root.Tag != document.Mapping {
		d.Add(root, "a file must be a mapping, found %v", root)
		return
	}
	d.decodeSections(root)
	for e := range root.Children() {
		field := e.Key.Value
		if d.kinds.OnlySections && slices.Contains(model.OwnFields, field) {
			field = "" // not one of this file
		}
		switch field {
		case model.LimitersField:
			d.decodeNamed(e, d.decodeSharedLimiter)
		case model.BudgetsField:
			d.decodeNamed(e, func(e *document.Node) {
				b := &model.Budget{Name: e.Key.Value}
				d.decodeOptions(e, reflect.ValueOf(&b.Options))
				d.file.Budgets = append(d.file.Budgets, b)
			})
		case model.PipelinesField:
			d.file.PipelinesAt = document.Entry{Node: e}.Place()
			d.decodeNamed(e, d.decodePipeline)
		case model.SchemaField:
			if e.Tag != document.Text {
				d.Add(e, "must be text, the address of the schema, found %v", e)
			}
		case model.AllowEmptyField:
			if e.Tag != document.Boolean {
				d.Add(e, "must be true or false, found %v", e)
			}
		default:
			d.decodeOther(e)
		}
	}
	d.resolveReferences()
	d.checkSections()
	d.checkEmpty(root)
}

// decodeOther accepts a top-level field that is no field of weir's: a section, or one that is ignored.
func (d *decoder) decodeOther(e *document.Node) {
	known := slices.Sorted(maps.Keys(d.kinds.Sections))
	if !d.kinds.OnlySections {
		known = append(known, model.OwnFields...)
	}
	_, section := d.kinds.Sections[e.Key.Value]
	switch {
	case section, strings.HasPrefix(e.Key.Value, model.IgnoredPrefix):
	case d.acceptsUnknown(e.Key.Value, known):
		d.unknown = true
	default:
		d.unknownField(e, known...)
	}
}

// maxNames bounds the number of limiters, of budgets and of pipelines in a file.
const maxNames = 10_000

// decodeNamed decodes a mapping of names to limiters, budgets or pipelines.
func (d *decoder) decodeNamed(n *document.Node, decode func(*document.Node)) {
	what := n.Key.Value
	if n.Tag != document.Mapping {
		d.Add(n, "must be a mapping of names to %s, found %v", what, n)
		return
	}
	count := 0
	for e := range n.Children() {
		if count++; count == maxNames+1 {
			d.Add(document.Key{Node: e}, "there are more than %d %s", maxNames, what)
		}
		d.checkName(document.Key{Node: e}, e.Key.Value)
		decode(e)
	}
}

// checkName checks a name that the file gives to something.
func (d *decoder) checkName(at interface{ Place() document.Place }, name string) {
	if len(name) > document.MaxName {
		d.Add(at, "the name %s has %d bytes, must have at most %d", document.Quoted(name), len(name), document.MaxName)
	}
	if strings.Contains(name, "/") {
		d.Add(at, "the name %s cannot have a slash, which is between the names of a pipeline and a strategy; write %s",
			document.Quoted(name), document.Quoted(strings.ReplaceAll(name, "/", "-")))
	}
}

func (d *decoder) unknownField(e *document.Node, known ...string) {
	d.Add(document.Key{Node: e}, "unknown field %s, %s", document.Quoted(e.Key.Value), d.Instead(e.Key.Value, known, "there are none here"))
}

// checkEmpty refuses a file that is right and has no pipelines, unless that is allowed: a file that was cut off or is being
// written would remove everything.
func (d *decoder) checkEmpty(root *document.Node) {
	allowed := root.Get(model.AllowEmptyField)
	has := func(s *section) bool { return len(s.Builds) > 0 }
	switch {
	case d.kinds.OnlySections, allowed != nil && !strings.EqualFold(allowed.Value, "false"):
	case len(d.Problems) > 0, len(d.file.Pipelines) > 0, d.unknown, slices.ContainsFunc(d.sections, has):
	default:
		d.Add(root, "the file has no %s; if that is meant, add %s: true", model.PipelinesField, model.AllowEmptyField)
	}
}

func (d *decoder) decodePipeline(e *document.Node) {
	const field = "strategies"
	p := &model.Pipeline{Name: e.Key.Value}
	d.nodes[p] = e
	d.file.Pipelines = append(d.file.Pipelines, p)
	list := e.Get(field)
	switch none := reflect.ValueOf(&struct{}{}); {
	case d.decodeOptions(e, none, field) == nil:
	case list == nil:
		d.Add(e, "%s is missing: a list, outermost first", field)
	case list.Tag != document.List:
		d.Add(list, "must be a list of strategies, outermost first, found %v", list)
	default:
		d.decodeStrategies(list, p)
	}
}

// decodeStrategies decodes the strategies of p. It refuses two of the same name, which telemetry could not tell apart
// and for which the registry would keep the same limiter.
func (d *decoder) decodeStrategies(list *document.Node, p *model.Pipeline) {
	first := make(map[string]*document.Node)
	for item := range list.Children() {
		e := d.oneKind(item, "strategy", d.strategies)
		if e == nil {
			continue
		}
		s := d.decodeStrategy(e)
		p.Strategies = append(p.Strategies, s)
		p.Places = append(p.Places, document.Entry{Node: e}.Place())
		if l := s.Limiter; l != nil && l.Kind != model.ChainKind {
			d.checkStoredName(e, p.RegistryName(s, ""), l)
		}
		if s.Name == "" {
			continue // its kind has no names
		}
		at := document.Entry{Node: e}.Place()
		if name := e.Get("name"); name != nil {
			if name.Tag != document.Text {
				continue // it has no valid name
			}
			d.checkName(name, name.Value)
			at = name.Place()
		}
		if before := first[s.Name]; before != nil {
			d.AddAt(at, "the pipeline has a strategy called %s already, in line %d; give this one another name", document.Quoted(s.Name), before.Key.Line)
		} else {
			first[s.Name] = e
		}
	}
}

func (d *decoder) decodeStrategy(e *document.Node) *model.Strategy {
	s := &model.Strategy{Kind: e.Key.Value}
	kind, known := d.kinds.Strategies[s.Kind]
	if !known { // AcceptUnknown
		return s
	}
	d.nodes[s] = e
	v := reflect.New(kind.Options)
	if s.Kind == model.RateLimiterKind {
		d.decodeRateLimiter(e, v, s)
	} else {
		d.decodeOptions(e, v)
	}
	s.Options = v.Elem().Interface()
	s.Given = d.file.Names.From(s.Options)
	s.Name, s.DefaultName = kind.NameOf(s.Options), kind.DefaultName
	return s
}
