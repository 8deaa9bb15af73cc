package reload

import (
	"cmp"
	"io"
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/explain"
	"github.com/weir-go/weir/reload/internal/model"
)

// A File is a file that was parsed without problems. Make one with [Parse]. It does not change, and is safe for
// concurrent use.
type File struct {
	name        string
	kinds       *Kinds
	has         model.File
	pipelinesAt *document.Node // where the pipelines begin
}

// Parse reads a file, YAML or JSON, and checks everything in it that can be checked without building pipelines:
// names, types, values, references, cycles. It has no side effects. Errors call the file name. k has the kinds and
// functions of the program; nil stands for weir's own kinds and no functions.
//
// The error is a [*FileError] with every problem, or a [weir.OptionsError] that says what is wrong with k.
//
// The work is bounded: a file has at most 1 MiB, values nested 100 deep, aliases that stand for 100,000 values,
// chains that stand for 1000 limiters, 10,000 limiters, budgets and pipelines each, and names of 256 bytes. The first
// 1000 problems are reported. Messages shorten what they quote from the file.
func Parse(name string, data []byte, k *Kinds) (f *File, err error) {
	if err := k.err(); err != nil {
		return nil, err
	}
	// A file must not end a running program, even if it makes the YAML library or a Validate method panic.
	defer func() {
		if p := recover(); p != nil {
			var found document.Problems
			found.Add(&document.Node{Line: 1, Column: 1}, "", "reading it panicked: %v", p)
			f, err = nil, newFileError(name, found)
		}
	}()
	return parse(name, data, k.orOwn())
}

func parse(name string, data []byte, k *Kinds) (*File, error) {
	root, found := document.Parse(data)
	if root == nil && len(found) > 0 {
		return nil, newFileError(name, found)
	}
	d := &decoder{Problems: found, kinds: k}
	if root == nil {
		root = &document.Node{Kind: document.Mapping, Line: 1, Column: 1}
	}
	f := &File{name: name, kinds: k, pipelinesAt: root}
	d.file(root, f)
	if err := newFileError(name, d.Problems); err != nil {
		return nil, err
	}
	return f, nil
}

// Name returns the name that Parse was given.
func (f *File) Name() string { return f.name }

// Explain writes to w what the named pipelines do, in words, or all pipelines if there are no names. Each strategy is
// one line, the outermost first. If the options of a program's own kind have a method Explain() string, its result is
// used. The error is that of w, or says that the file has no pipeline of a name.
func (f *File) Explain(w io.Writer, names ...string) error {
	return explain.Write(w, f.has, names...)
}

// Pipelines returns the names of the pipelines, in the order of the file.
func (f *File) Pipelines() []string {
	names := make([]string, len(f.has.Pipelines))
	for i, p := range f.has.Pipelines {
		names[i] = p.Name
	}
	return names
}

// Limiters returns the names of the shared limiters, in the order of the file.
func (f *File) Limiters() []string {
	names := make([]string, len(f.has.Limiters))
	for i, l := range f.has.Limiters {
		names[i] = l.Name
	}
	return names
}

// Budgets returns the names of the budgets, in the order of the file.
func (f *File) Budgets() []string {
	names := make([]string, len(f.has.Budgets))
	for i, b := range f.has.Budgets {
		names[i] = b.Name
	}
	return names
}

// maxNames bounds the number of limiters, of budgets and of pipelines in a file.
const maxNames = 10_000

// named checks the number and the lengths of the names that are keys of n.
func (d *decoder) named(n *document.Node, path, what string) {
	if len(n.Entries) > maxNames {
		d.Add(n.Entries[maxNames].Key, path, "there are %d %s, a file has at most %d", len(n.Entries), what, maxNames)
	}
	for _, e := range n.Entries {
		d.nameLength(e.Key, path)
	}
}

func (d *decoder) nameLength(name *document.Node, path string) {
	if len(name.Text) > document.MaxName {
		d.Add(name, path, "the name %s has %d bytes, must have at most %d", document.Quoted(name.Text), len(name.Text), document.MaxName)
	}
}

func (d *decoder) file(root *document.Node, f *File) {
	if root.Kind != document.Mapping {
		d.Add(root, "", "a file must be a mapping with %s, found %v", model.PipelinesField, root)
		return
	}
	for _, e := range root.Entries {
		switch e.Key.Text {
		case model.LimitersField:
			d.sharedLimiters(e.Value, f)
		case model.BudgetsField:
			d.budgets(e.Value, f)
		case model.PipelinesField:
			f.pipelinesAt = e.Key
			d.pipelines(e.Value, f)
		case model.SchemaField:
			if e.Value.Kind != document.Text {
				d.Add(e.Value, model.SchemaField, "must be text, the address of the schema, found %v", e.Value)
			}
		case model.AllowEmptyField:
			if e.Value.Kind != document.Boolean {
				d.Add(e.Value, model.AllowEmptyField, "must be true or false, found %v", e.Value)
			}
		default:
			if !strings.HasPrefix(e.Key.Text, model.IgnoredPrefix) {
				fields := []string{model.LimitersField, model.BudgetsField, model.PipelinesField, model.AllowEmptyField}
				d.Add(e.Key, "", "unknown field %s, %s", document.Quoted(e.Key.Text), d.Instead(e.Key.Text, fields, ""))
			}
		}
	}
	d.refer(f)
	d.ownNames(f)
	d.checkEmpty(root)
}

// checkEmpty refuses a file without pipelines, unless that is allowed: a file that was cut off or is being written
// would remove everything.
func (d *decoder) checkEmpty(root *document.Node) {
	if p := root.Get(model.PipelinesField); p != nil && (p.Kind != document.Mapping || len(p.Entries) > 0) {
		return // it has a problem already, or is not empty
	}
	if allowed := root.Get(model.AllowEmptyField); allowed != nil && !strings.EqualFold(allowed.Text, "false") {
		return
	}
	d.Add(root, "", "the file has no %s; if that is meant, add %s: true", model.PipelinesField, model.AllowEmptyField)
}

func (d *decoder) sharedLimiters(n *document.Node, f *File) {
	if n.Kind != document.Mapping {
		d.Add(n, model.LimitersField, "must be a mapping of names to limiters, found %v", n)
		return
	}
	d.named(n, model.LimitersField, "limiters")
	for _, e := range n.Entries {
		d.in = e.Key.Text
		path := document.Child(model.LimitersField, e.Key.Text)
		if l := d.oneLimiter(e.Value, path); l != nil {
			l.Name = e.Key.Text
			d.storedName(e.Key, path, l.Name, l)
			f.has.Limiters = append(f.has.Limiters, l)
		} else {
			// Its problem is reported; its names elsewhere in the file are not reported as unknown.
			f.has.Limiters = append(f.has.Limiters, &model.Limiter{Name: e.Key.Text})
		}
	}
	d.in = ""
}

// oneLimiter decodes a mapping of one kind of limiter to its options, with or without a store.
func (d *decoder) oneLimiter(n *document.Node, path string) *model.Limiter {
	kinds := d.kinds.limiterNames()
	kind, store := d.splitStore(n, path, kinds)
	e, ok := d.oneKind(kind, path, "limiter", kinds)
	in := d.storeOf(store, path, e)
	if !ok {
		return nil
	}
	return d.limiter(e.Key.Text, e.Value, document.Child(path, e.Key.Text), in)
}

// eachLimiter decodes the limiter that a partitioned one has for each key.
func (d *decoder) eachLimiter(n *document.Node, path string, in *model.Store) *model.Limiter {
	e, ok := d.oneKind(d.withoutStore(n, path), path, eachKey, model.Partitionable)
	if !ok {
		return nil
	}
	return d.limiter(e.Key.Text, e.Value, document.Child(path, e.Key.Text), in)
}

// limiter decodes the options of a limiter.
func (d *decoder) limiter(kind string, options *document.Node, path string, in *model.Store) *model.Limiter {
	l := &model.Limiter{Kind: kind, Store: in}
	if k := d.kinds.limiter(kind); k != nil {
		k.decode(d, options, path, l)
	}
	return l
}

// oneKind returns the only entry of a mapping, if its key is one of the kinds.
func (d *decoder) oneKind(n *document.Node, path, what string, kinds []string) (document.Entry, bool) {
	if n.Kind != document.Mapping {
		d.Add(n, path, "must be a mapping of a kind of %s to its options, found %v; the kinds are %s", what, n, strings.Join(kinds, ", "))
		return document.Entry{}, false
	}
	if len(n.Entries) != 1 {
		if len(n.Entries) == 0 {
			d.Add(n, path, "the kind of %s is missing, it is one of %s", what, strings.Join(kinds, ", "))
			return document.Entry{}, false
		}
		second := n.Entries[1].Key
		d.Add(second, path, "a %s has one kind, %s comes after %s; is the indentation right?", what, document.Quoted(second.Text), document.Quoted(n.Entries[0].Key.Text))
	}
	e := n.Entries[0]
	if slices.Contains(kinds, e.Key.Text) {
		return e, len(n.Entries) == 1
	}
	if what != eachKey && d.kinds.accepts(e.Key.Text, kinds) {
		return e, true
	}
	d.Add(e.Key, path, "unknown kind of %s %s, %s", what, document.Quoted(e.Key.Text), d.Instead(e.Key.Text, kinds, ""))
	return document.Entry{}, false
}

func (d *decoder) pipelines(n *document.Node, f *File) {
	if n.Kind != document.Mapping {
		d.Add(n, model.PipelinesField, "must be a mapping of names to pipelines, found %v", n)
		return
	}
	d.named(n, model.PipelinesField, "pipelines")
	for _, e := range n.Entries {
		f.has.Pipelines = append(f.has.Pipelines, d.onePipeline(e, document.Child(model.PipelinesField, e.Key.Text)))
	}
}

func (d *decoder) onePipeline(e document.Entry, path string) *model.Pipeline {
	const field = "strategies"
	p := &model.Pipeline{Name: e.Key.Text}
	d.pipeline = p.Name
	if e.Value.Kind != document.Mapping {
		d.Add(e.Value, path, "must be a mapping with %s, found %v", field, e.Value)
		return p
	}
	for _, of := range e.Value.Entries {
		if of.Key.Text != field {
			d.Add(of.Key, path, "unknown field %s, %s", document.Quoted(of.Key.Text), d.Instead(of.Key.Text, []string{field}, ""))
		}
	}
	strategies := e.Value.Get(field)
	path = document.Child(path, field)
	switch {
	case strategies == nil:
		d.Add(e.Value, document.Child(model.PipelinesField, e.Key.Text), "%s is missing: a list, outermost first", field)
	case strategies.Kind != document.List:
		d.Add(strategies, path, "must be a list of strategies, outermost first, found %v", strategies)
	default:
		d.strategies(strategies, path, p)
	}
	return p
}

// strategies decodes the strategies of p. It refuses two of the same name, which telemetry could not tell apart and
// for which the registry would keep the same limiter.
func (d *decoder) strategies(n *document.Node, path string, p *model.Pipeline) {
	first := make(map[string]*document.Node)
	for i, item := range n.Items {
		at := document.Element(path, i)
		e, ok := d.oneKind(item, at, "strategy", d.kinds.strategyNames())
		if !ok {
			continue
		}
		s := &model.Strategy{Kind: e.Key.Text}
		at = document.Child(at, s.Kind)
		d.strategy(e, at, s)
		p.Strategies = append(p.Strategies, s)
		p.Places = append(p.Places, document.Place{Node: e.Key, Path: at})
		named := cmp.Or(e.Value.Get("name"), e.Key)
		if s.Name == "" || named.Kind != document.Text {
			continue // it has no valid name
		}
		d.nameLength(named, at)
		if before := first[s.Name]; before != nil {
			d.Add(named, at, "the pipeline has a strategy called %s already, in line %d; give this one another name", document.Quoted(s.Name), before.Line)
		} else {
			first[s.Name] = e.Key
		}
	}
}

func (d *decoder) strategy(e document.Entry, path string, s *model.Strategy) {
	kind := d.kinds.strategy(s.Kind)
	switch {
	case kind == nil:
		return // AcceptUnknown
	case kind.decode != nil:
		kind.decode(d, e.Value, path, s)
	default:
		s.Options = d.decodeOptions(e.Value, kind.options, path, nil)
	}
	s.Name, s.Usual = kind.strategyName(s.Options), kind.usual
}
