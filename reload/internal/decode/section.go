package decode

import (
	"cmp"
	"maps"
	"reflect"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// A section is a section of the file while the file is decoded.
type section struct {
	*model.Section
	kind       model.SectionKind
	options    *structure  // nil: it is no mapping
	references []reference // what it names, with the model.Rule's Refers
	valid      bool        // no problem was found in it so far
}

// decodeSections decodes the sections before everything else, because the rest of the file can use the names that they
// give.
func (d *decoder) decodeSections(root *document.Node) {
	d.file.Names.Taken = func(what model.Purpose, name string) bool { return slices.Contains(d.kinds.Functions[what], name) }
	d.file.Names.Refused = func(what model.Purpose, name, reason string) {
		d.Add(d.section.options.node, "it gives the %s %s, but %s", what, document.Quoted(name), reason)
	}
	for _, e := range root.Entries {
		if kind, ok := d.kinds.Sections[e.Key.Text]; ok {
			d.decodeSection(e, kind)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.kinds.Sections)) {
		if d.kinds.Sections[name].Required && root.Get(name) == nil {
			d.Add(root, "%s is missing", name)
		}
	}
	for what, given := range d.file.Names.Given {
		names := append(slices.Clone(d.kinds.Functions[what]), slices.Collect(maps.Keys(given))...)
		slices.Sort(names)
		d.kinds.Functions[what] = names
	}
}

func (d *decoder) decodeSection(e document.Entry, kind model.SectionKind) {
	v := reflect.New(kind.Options)
	s := &section{Section: &model.Section{
		Name: e.Key.Text, Limiters: make(map[string]*model.Limiter), Place: e.Place(), Places: make(map[string]document.Place),
	}, kind: kind}
	d.section = s
	defer func() { d.section = nil }()
	d.sections = append(d.sections, s)
	d.file.Sections = append(d.file.Sections, s.Section)
	d.complete = d.complete || kind.Complete
	d.kinds.AcceptUnknown = d.kinds.AcceptUnknown && !kind.Complete
	before := len(d.Problems)
	s.options = d.decodeOptions(e.Value, v)
	s.Options = v.Elem().Interface()
	if s.options == nil {
		return
	}
	d.resolveWithin(s)
	s.valid = len(d.Problems) == before
	if kind.Names != nil {
		kind.Names(&d.file.Names, s.Options)
	}
	if kind.Builds != nil && s.valid {
		s.Builds = kind.Builds(s.Options)
	}
}

// resolveWithin checks the references of a section to entries of its own fields.
func (d *decoder) resolveWithin(s *section) {
	fields := make(map[string]collection[document.Node])
	for _, r := range s.references {
		field, within := strings.CutPrefix(r.from, ".")
		if !within {
			continue
		}
		in, known := fields[field]
		if !known {
			in.byName = make(map[string]*document.Node)
			if n := s.options.node.Get(field); n != nil {
				for _, e := range n.Entries {
					in.names = append(in.names, e.Key.Text)
					in.byName[e.Key.Text] = e.Value
				}
			}
			fields[field] = in
		}
		if in.byName[r.Text] == nil {
			d.Add(r, "there is no %s in %s.%s, %s", document.Quoted(r.Text), s.Name, field, d.Instead(r.Text, in.names, "which is empty"))
		}
	}
}

// resolveSections sets the limiters that the sections name, and what the names that sections give stand for.
func (d *decoder) resolveSections() {
	limiters := collect("limiter", d.file.Limiters, func(l *model.Limiter) string { return l.Name })
	pipelines := collect("pipeline", d.file.Pipelines, func(p *model.Pipeline) string { return p.Name })
	for _, s := range d.sections {
		for _, r := range s.references {
			before := len(d.Problems)
			switch r.from {
			case model.LimitersField:
				if l := find(d, r.Node, limiters); l != nil {
					s.Limiters[l.Name] = l
				}
			case model.PipelinesField:
				find(d, r.Node, pipelines)
			}
			s.valid = s.valid && len(d.Problems) == before
		}
	}
	for _, l := range d.file.Limiters {
		d.setGiven(l)
	}
	for _, p := range d.file.Pipelines {
		for _, s := range p.Strategies {
			s.Given = d.file.Names.From(s.Options)
			if s.Limiter != nil && s.Limiter.Name == "" {
				d.setGiven(s.Limiter)
			}
		}
	}
}

func (d *decoder) setGiven(l *model.Limiter) {
	l.Given = d.file.Names.From(l.Options)
	if l.Store != nil {
		l.Given = append(l.Given, d.file.Names.From(*l.Store)...)
	}
}

// hasPipelines reports whether the top-level field is a section that has pipelines or may have them.
func (d *decoder) hasPipelines(e document.Entry) bool {
	i := slices.IndexFunc(d.sections, func(s *section) bool { return s.Name == e.Key.Text })
	if i >= 0 {
		return !d.sections[i].valid || len(d.sections[i].Builds) > 0
	}
	switch e.Key.Text {
	case model.LimitersField, model.BudgetsField, model.PipelinesField, model.AllowEmptyField, model.SchemaField:
		return false
	default:
		return d.kinds.AcceptUnknown && !strings.HasPrefix(e.Key.Text, model.IgnoredPrefix)
	}
}

// checkSections checks the sections against the rest of the file.
func (d *decoder) checkSections() {
	owners := make(map[string]*section)
	for _, s := range d.sections {
		for _, name := range s.Pipelines() {
			switch other := owners[name]; {
			case name == "" || len(name) > document.MaxName:
				d.AddAt(s.Place, "it defines a pipeline with the name %s, which must have from 1 to %d bytes", document.Quoted(name), document.MaxName)
			case other != nil:
				d.AddAt(s.Place, "it defines the pipeline %s, like %s", document.Name(name), other.Name)
			}
			owners[name] = cmp.Or(owners[name], s)
		}
	}
	for _, p := range d.file.Pipelines {
		if s := owners[p.Name]; s != nil {
			d.AddAt(d.places[p], "the pipeline of this name is that of %s; give this one another name", s.Name)
		}
	}
	for _, s := range d.sections {
		if s.kind.Check != nil && s.valid {
			d.addInvalid(s.kind.Check(d.file, s.Options), s.options)
		}
	}
}
