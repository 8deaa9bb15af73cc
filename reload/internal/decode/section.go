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
	references []reference // what it names
	valid      bool        // no problem was found in it so far
}

// A reference is a name in a section of something else.
type reference struct {
	*document.Node
	refers string // see [model.Rule]
}

// decodeSections decodes the sections before everything else, because the rest of the file can use the names that they
// give.
func (d *decoder) decodeSections(root *document.Node) {
	given := make(map[model.Purpose]map[string]model.Given)
	d.file.Names = model.Names{Given: given, Refuses: func(what model.Purpose, name string, isNil bool) bool {
		_, twice := given[what][name]
		reason := ""
		switch {
		case name == "":
			reason = "the name is empty"
		case isNil:
			reason = "the function is nil"
		case twice || slices.Contains(d.kinds.Functions[what], name):
			reason = "the name is taken"
		case strings.Contains(name, "/"):
			reason = "a name cannot have a slash"
		default:
			return false
		}
		d.Add(d.section.options.node, "it gives the %s %s, but %s", what, document.Quoted(name), reason)
		return true
	}}
	for e := range root.Children() {
		if kind, ok := d.kinds.Sections[e.Key.Value]; ok {
			d.decodeSection(e, kind)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.kinds.Sections)) {
		if d.kinds.Sections[name].Required && root.Get(name) == nil {
			d.Add(root, "%s is missing", name)
		}
	}
	for what, named := range given {
		d.kinds.Functions[what] = slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(d.kinds.Functions[what]), maps.Keys(named))))
	}
}

func (d *decoder) decodeSection(e *document.Node, kind model.SectionKind) {
	v := reflect.New(kind.Options)
	s := &section{Section: &model.Section{
		Name: e.Key.Value, Limiters: make(map[string]*model.Limiter), Place: document.Entry{Node: e}.Place(), Places: make(map[string]document.Place),
	}, kind: kind}
	d.section = s
	defer func() { d.section = nil }()
	d.sections = append(d.sections, s)
	d.file.Sections = append(d.file.Sections, s.Section)
	d.kinds.AcceptUnknown = d.kinds.AcceptUnknown && !kind.Complete
	before := len(d.Problems)
	s.options = d.decodeOptions(e, v)
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
		field, within := strings.CutPrefix(r.refers, ".")
		if !within {
			continue
		}
		in, known := fields[field]
		if !known {
			in.byName = make(map[string]*document.Node)
			if n := s.options.node.Get(field); n != nil && n.Tag == document.Mapping {
				for e := range n.Children() {
					in.names = append(in.names, e.Key.Value)
					in.byName[e.Key.Value] = e
				}
			}
			fields[field] = in
		}
		if in.byName[r.Value] == nil {
			d.Add(r, "there is no %s in %s.%s, %s", document.Quoted(r.Value), s.Name, field, d.Instead(r.Value, in.names, "which is empty"))
		}
	}
}

// resolveSection sets the limiters that a section names.
func (d *decoder) resolveSection(s *section, limiters collection[model.Limiter], pipelines collection[model.Pipeline]) {
	before := len(d.Problems)
	for _, r := range s.references {
		switch r.refers {
		case model.LimitersField:
			if l := find(d, r.Node, limiters); l != nil {
				s.Limiters[l.Name] = l
			}
		case model.PipelinesField:
			find(d, r.Node, pipelines)
		}
	}
	s.valid = s.valid && len(d.Problems) == before
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
			d.Add(document.Entry{Node: d.nodes[p]}, "the pipeline of this name is that of %s; give this one another name", s.Name)
		}
	}
	for _, s := range d.sections {
		if s.kind.Check != nil && s.valid {
			d.addInvalid(s.kind.Check(d.file, s.Options), s.options)
		}
	}
}
