// Package decode turns the nodes of a document into a [model.File], and finds everything that is wrong with them.
//
//   - decode.go: File. It first decodes the sections, which can give names, then each limiter, budget and pipeline
//     by itself, and then resolves the names.
//   - limiter.go: limiters, chains, stores.
//   - options.go: the kind that a mapping has, the walk over the fields of a struct, and where the file has the field that
//     a Validate method refuses.
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

// File decodes a document. found are the problems that reading the document has found; File returns them with its own.
// The file is only valid if there are none.
func File(root *document.Node, found document.Problems, k *model.Kinds) (*model.File, document.Problems) {
	d := &decoder{
		mapper:     mapper{Problems: found, kinds: k},
		limiters:   slices.Sorted(maps.Keys(k.Limiters)),
		strategies: slices.Sorted(maps.Keys(k.Strategies)),
		file:       &model.File{PipelinesAt: document.Place{Line: root.Line, Column: root.Column, Path: model.PipelinesField}},
		nodes:      make(map[any]*document.Node),
	}
	d.decodeFile(root)
	return d.file, d.Problems
}

func (d *decoder) decodeFile(root *document.Node) {
	if root.Tag != document.Mapping {
		d.Add(root.Place(), "a file must be a mapping, found %v", root)
		return
	}
	d.decodeSections(root)
	for _, e := range root.Content {
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
			d.file.PipelinesAt = e.AtKey()
			d.decodeNamed(e, d.decodePipeline)
		case model.SchemaField:
			if e.Tag != document.Text {
				d.Add(e.Place(), "must be text, the address of the schema, found %v", e)
			}
		case model.AllowEmptyField:
			if e.Tag != document.Boolean {
				d.Add(e.Place(), "must be true or false, found %v", e)
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
		d.Add(n.Place(), "must be a mapping of names to %s, found %v", what, n)
		return
	}
	count := 0
	for _, e := range n.Content {
		if count++; count == maxNames+1 {
			d.Add(e.OfKey(), "there are more than %d %s", maxNames, what)
		}
		d.checkName(e.OfKey(), e.Key.Value)
		decode(e)
	}
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
		d.Add(root.Place(), "the file has no %s; if that is meant, add %s: true", model.PipelinesField, model.AllowEmptyField)
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
		d.Add(e.Place(), "%s is missing: a list, outermost first", field)
	case list.Tag != document.List:
		d.Add(list.Place(), "must be a list of strategies, outermost first, found %v", list)
	default:
		d.decodeStrategies(list, p)
	}
}

// decodeStrategies decodes the strategies of p. It refuses two of the same name, which telemetry could not tell apart
// and for which the registry would keep the same limiter.
func (d *decoder) decodeStrategies(list *document.Node, p *model.Pipeline) {
	first := make(map[string]*document.Node)
	for _, item := range list.Content {
		e := d.oneKind(item, "strategy", d.strategies)
		if e == nil {
			continue
		}
		s := d.decodeStrategy(e)
		p.Strategies = append(p.Strategies, s)
		p.Places = append(p.Places, e.AtKey())
		if l := s.Limiter; l != nil && l.Kind != model.ChainKind {
			d.checkStoredName(e, p.RegistryName(s, ""), l)
		}
		if s.Name == "" {
			continue // its kind has no names
		}
		at := e.AtKey()
		if name := e.Get("name"); name != nil {
			if name.Tag != document.Text {
				continue // it has no valid name
			}
			d.checkName(name.Place(), name.Value)
			at = name.Place()
		}
		if before := first[s.Name]; before != nil {
			d.Add(at, "the pipeline has a strategy called %s already, in line %d; give this one another name", document.Quoted(s.Name), before.Key.Line)
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
	s.Name = kind.DefaultName
	if name := e.Get("name"); s.Name != "" && name != nil && name.Tag == document.Text {
		s.Name = cmp.Or(name.Value, s.Name)
	}
	return s
}

// decodeSections decodes the sections before everything else, because the rest of the file can use the names that they
// give.
func (d *decoder) decodeSections(root *document.Node) {
	given := make(map[model.Purpose]map[string]model.Given)
	d.file.Names = model.Names{Given: given, Refuses: func(what model.Purpose, name string, isNil bool) bool {
		_, twice := given[what][name]
		var reason string
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
		d.Add(d.section.options.node.Place(), "it gives the %s %s, but %s", what, document.Quoted(name), reason)
		return true
	}}
	for _, e := range root.Content {
		if kind, ok := d.kinds.Sections[e.Key.Value]; ok {
			d.decodeSection(e, kind)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(d.kinds.Sections)) {
		if d.kinds.Sections[name].Required && root.Get(name) == nil {
			d.Add(root.Place(), "%s is missing", name)
		}
	}
	for what, named := range given {
		d.kinds.Functions[what] = slices.Sorted(slices.Values(slices.AppendSeq(slices.Clone(d.kinds.Functions[what]), maps.Keys(named))))
	}
}

func (d *decoder) decodeSection(e *document.Node, kind model.SectionKind) {
	v := reflect.New(kind.Options)
	s := &section{Section: &model.Section{
		Name: e.Key.Value, Limiters: make(map[string]*model.Limiter), Place: e.AtKey(), Places: make(map[string]document.Place),
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
func (d *mapper) resolveWithin(s *section) {
	for _, r := range s.references {
		field, within := strings.CutPrefix(r.refers, ".")
		if !within {
			continue
		}
		in := s.options.node.Get(field)
		if in == nil || in.Tag != document.Mapping {
			in = &document.Node{}
		}
		if in.Get(r.Value) == nil {
			d.Add(r.Place(), "there is no %s in %s.%s, %s", document.Quoted(r.Value), s.Name, field, document.Instead(r.Value, in.Keys(), "which is empty"))
		}
	}
}

// resolveSection sets the limiters that a section names.
func (d *mapper) resolveSection(s *section, limiters collection[model.Limiter], pipelines collection[model.Pipeline]) {
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
				d.Add(s.Place, "it defines a pipeline with the name %s, which must have from 1 to %d bytes", document.Quoted(name), document.MaxName)
			case other != nil:
				d.Add(s.Place, "it defines the pipeline %s, like %s", document.Name(name), other.Name)
			}
			owners[name] = cmp.Or(owners[name], s)
		}
	}
	for _, p := range d.file.Pipelines {
		if s := owners[p.Name]; s != nil {
			d.Add(d.nodes[p].AtKey(), "the pipeline of this name is that of %s; give this one another name", s.Name)
		}
	}
	for _, s := range d.sections {
		if s.kind.Check != nil && s.valid {
			d.addInvalid(s.kind.Check(d.file, s.Options), s.options)
		}
	}
}

// resolveReferences sets the pointers of the model for the names of limiters and budgets. It refuses unknown names,
// cycles, chains in chains, and rate limiters with options that their limiter does not support.
func (d *decoder) resolveReferences() {
	limiters := collect("limiter", d.file.Limiters, func(l *model.Limiter) string { return l.Name })
	d.file.LimiterNamed = limiters.byName
	budgets := collect("budget", d.file.Budgets, func(b *model.Budget) string { return b.Name })
	pipelines := collect("pipeline", d.file.Pipelines, func(p *model.Pipeline) string { return p.Name })
	for _, l := range d.file.Limiters {
		d.resolveChain(l, limiters)
	}
	embedded := make(map[string][]*document.Node) // the names of the pipelines that a pipeline embeds
	for _, p := range d.file.Pipelines {
		for _, s := range p.Strategies {
			n := d.nodes[s]
			switch o := s.Options.(type) {
			case model.RateLimiterOptions:
				if l := find(&d.mapper, n.Get(model.LimiterField), limiters); l != nil {
					s.Limiter = l
				} else if s.Limiter != nil {
					d.resolveChain(s.Limiter, limiters)
				}
				if s.Limiter != nil {
					d.checkAdaptive(n, o, s.Limiter)
				}
			case model.RetryOptions, model.HedgingOptions:
				s.Budget = find(&d.mapper, n.Get("budget"), budgets)
			case model.PipelineOptions:
				if name := n.Get("name"); find(&d.mapper, name, pipelines) != nil {
					embedded[p.Name] = append(embedded[p.Name], name)
				}
			}
		}
	}
	d.refuseCycles(pipelines.names, embedded)
	for _, s := range d.sections {
		d.resolveSection(s, limiters, pipelines)
	}
}

// resolveChain sets the members of a chain. For any other limiter it does nothing.
func (d *decoder) resolveChain(l *model.Limiter, limiters collection[model.Limiter]) {
	list := d.nodes[l]
	if list == nil {
		return
	}
	for _, item := range list.Content {
		switch m := find(&d.mapper, item, limiters); {
		case m == nil:
		case m.Kind == model.ChainKind:
			d.Add(item.Place(), "%s is a chain, and a chain has limiters, not chains: list the members of %[1]s instead", document.Quoted(m.Name))
		default:
			l.Members = append(l.Members, m)
		}
	}
}

// checkAdaptive refuses options of a rate limiter that its limiter does not support.
func (d *decoder) checkAdaptive(n *document.Node, o model.RateLimiterOptions, l *model.Limiter) {
	if list := d.nodes[l]; l.Kind == model.ChainKind && (list == nil || len(l.Members) < len(list.Content)) {
		return // it has a problem
	}
	if o.Shadow && l.Adapts() {
		d.Add(n.Get("shadow").Place(), "cannot be used with an adaptive limiter or a throttler, which must see all executions to learn from them")
	}
	switch {
	case o.Handle == "":
	case !l.CanAdapt():
		d.Add(n.Get("handle").Place(), "only an adaptive limiter or a throttler needs the outcomes of executions, this limiter is neither")
	case model.Adaptive == nil:
		d.Add(n.Get("handle").Place(), "%s", model.MissingImport("a handle"))
	}
}

// refuseCycles adds a problem for each name with which a pipeline embeds itself.
func (d *mapper) refuseCycles(names []string, embedded map[string][]*document.Node) {
	var path []string
	position := make(map[string]int) // in path, from 1; 0: not visited yet; -1: done
	var visit func(name string)
	visit = func(name string) {
		path = append(path, name)
		position[name] = len(path)
		for _, n := range embedded[name] {
			switch at := position[n.Value]; {
			case at > 0:
				var cycle []string
				for _, name := range append(slices.Clone(document.Listed(path[at-1:])), n.Value) {
					cycle = append(cycle, document.Name(name))
				}
				d.Add(n.Place(), "a pipeline cannot contain itself: %s", strings.Join(cycle, " -> "))
			case at == 0:
				visit(n.Value)
			}
		}
		path = path[:len(path)-1]
		position[name] = -1
	}
	for _, name := range names {
		if position[name] == 0 {
			visit(name)
		}
	}
}
