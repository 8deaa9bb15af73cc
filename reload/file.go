package reload

import (
	"cmp"
	"slices"
	"strings"
)

// A File is a file that was parsed without problems. Make one with [Parse]. It does not change, and is safe for
// concurrent use.
type File struct {
	name      string
	kinds     *Kinds
	limiters  []*limiterModel  // shared, in the order of the file
	budgets   []*budgetModel   // in the order of the file
	pipelines []*pipelineModel // in the order of the file

	pipelinesAt *node // where they begin
}

// A pipelineModel is a pipeline as the file describes it.
type pipelineModel struct {
	name       string
	strategies []*strategyModel
	places     []Problem // of the strategies, without a message
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
	// No file is to take a running program with it, not even one that finds a
	// mistake in the YAML library or in a Validate method.
	defer func() {
		if p := recover(); p != nil {
			var found problems
			found.add(&node{line: 1, column: 1}, "", "reading it panicked: %v", p)
			f, err = nil, newFileError(name, found)
		}
	}()
	return parse(name, data, k.orOwn())
}

func parse(name string, data []byte, k *Kinds) (*File, error) {
	root, found := parseDocument(data)
	if root == nil && len(found) > 0 {
		return nil, newFileError(name, found)
	}
	d := &decoder{problems: found, kinds: k}
	if root == nil {
		root = &node{kind: mapping, line: 1, column: 1}
	}
	f := &File{name: name, kinds: k, pipelinesAt: root}
	d.file(root, f)
	if err := newFileError(name, d.problems); err != nil {
		return nil, err
	}
	return f, nil
}

// Name returns the name that Parse was given.
func (f *File) Name() string { return f.name }

// Pipelines returns the names of the pipelines, in the order of the file.
func (f *File) Pipelines() []string {
	names := make([]string, len(f.pipelines))
	for i, p := range f.pipelines {
		names[i] = p.name
	}
	return names
}

// Limiters returns the names of the shared limiters, in the order of the file.
func (f *File) Limiters() []string {
	names := make([]string, len(f.limiters))
	for i, l := range f.limiters {
		names[i] = l.name
	}
	return names
}

// Budgets returns the names of the budgets, in the order of the file.
func (f *File) Budgets() []string {
	names := make([]string, len(f.budgets))
	for i, b := range f.budgets {
		names[i] = b.name
	}
	return names
}

// The fields of a file.
const (
	limitersField   = "limiters"
	budgetsField    = "budgets"
	pipelinesField  = "pipelines"
	allowEmptyField = "allow_empty"
	schemaField     = "$schema" // what an editor finds the schema by
)

// The bounds of what a file can name. A store takes shorter names still.
const (
	maxNames      = 10_000 // of limiters, of budgets and of pipelines each
	maxNameLength = 256    // bytes
)

// named checks how many names of one kind there are, and how long they are.
func (d *decoder) named(n *node, path, what string) {
	if len(n.entries) > maxNames {
		d.add(n.entries[maxNames].key, path, "there are %d %s, a file has at most %d", len(n.entries), what, maxNames)
	}
	for _, e := range n.entries {
		d.nameLength(e.key, path)
	}
}

func (d *decoder) nameLength(name *node, path string) {
	if len(name.text) > maxNameLength {
		d.add(name, path, "the name %s has %d bytes, must have at most %d", shortened(name.text), len(name.text), maxNameLength)
	}
}

// ignoredPrefix begins the fields of a file that are there for their anchors.
const ignoredPrefix = "x-"

func (d *decoder) file(root *node, f *File) {
	if root.kind != mapping {
		d.add(root, "", "a file must be a mapping with %s, found %v", pipelinesField, root)
		return
	}
	for _, e := range root.entries {
		switch e.key.text {
		case limitersField:
			d.sharedLimiters(e.value, f)
		case budgetsField:
			d.budgets(e.value, f)
		case pipelinesField:
			f.pipelinesAt = e.key
			d.pipelines(e.value, f)
		case schemaField:
			if e.value.kind != text {
				d.add(e.value, schemaField, "must be text, the address of the schema, found %v", e.value)
			}
		case allowEmptyField:
			if e.value.kind != boolean {
				d.add(e.value, allowEmptyField, "must be true or false, found %v", e.value)
			}
		default:
			if !strings.HasPrefix(e.key.text, ignoredPrefix) {
				fields := []string{limitersField, budgetsField, pipelinesField, allowEmptyField}
				d.add(e.key, "", "unknown field %s, %s", shortened(e.key.text), d.instead(e.key.text, fields, ""))
			}
		}
	}
	d.refer(f)
	d.ownNames(f)
	d.checkEmpty(root)
}

// checkEmpty keeps a file that was cut off, or is being written, from removing
// everything.
func (d *decoder) checkEmpty(root *node) {
	if p := root.get(pipelinesField); p != nil && (p.kind != mapping || len(p.entries) > 0) {
		return // it says so itself, or is not empty
	}
	if allowed := root.get(allowEmptyField); allowed != nil && !strings.EqualFold(allowed.text, "false") {
		return
	}
	d.add(root, "", "the file has no %s; if that is meant, add %s: true", pipelinesField, allowEmptyField)
}

func (d *decoder) sharedLimiters(n *node, f *File) {
	if n.kind != mapping {
		d.add(n, limitersField, "must be a mapping of names to limiters, found %v", n)
		return
	}
	d.named(n, limitersField, "limiters")
	for _, e := range n.entries {
		d.in = e.key.text
		path := child(limitersField, e.key.text)
		if l := d.oneLimiter(e.value, path); l != nil {
			l.name = e.key.text
			d.storedName(e.key, path, l.name, l)
			f.limiters = append(f.limiters, l)
		} else {
			// It has its problem. What names it need not have another.
			f.limiters = append(f.limiters, &limiterModel{name: e.key.text})
		}
	}
	d.in = ""
}

// oneLimiter decodes a mapping of one kind to its options, and maybe a store beside it.
func (d *decoder) oneLimiter(n *node, path string) *limiterModel {
	kinds := d.kinds.limiterNames()
	kind, store := d.splitStore(n, path, kinds)
	e, ok := d.oneKind(kind, path, "limiter", kinds)
	in := d.storeOf(store, path, e)
	if !ok {
		return nil
	}
	return d.limiter(e.key.text, e.value, child(path, e.key.text), in)
}

// eachLimiter decodes the limiter of a partitioned one.
func (d *decoder) eachLimiter(n *node, path string, in *storeModel) *limiterModel {
	e, ok := d.oneKind(d.withoutStore(n, path), path, eachKey, partitionable)
	if !ok {
		return nil
	}
	return d.limiter(e.key.text, e.value, child(path, e.key.text), in)
}

// limiter decodes the options of a limiter.
func (d *decoder) limiter(kind string, options *node, path string, in *storeModel) *limiterModel {
	l := &limiterModel{kind: kind, store: in}
	if k := d.kinds.limiter(kind); k != nil {
		k.decode(d, options, path, l)
	}
	return l
}

// oneKind returns the only entry of a mapping if it is one of the kinds.
func (d *decoder) oneKind(n *node, path, what string, kinds []string) (entry, bool) {
	if n.kind != mapping {
		d.add(n, path, "must be a mapping of a kind of %s to its options, found %v; the kinds are %s", what, n, strings.Join(kinds, ", "))
		return entry{}, false
	}
	if len(n.entries) != 1 {
		if len(n.entries) == 0 {
			d.add(n, path, "the kind of %s is missing, it is one of %s", what, strings.Join(kinds, ", "))
			return entry{}, false
		}
		second := n.entries[1].key
		d.add(second, path, "a %s has one kind, %s comes after %s; is the indentation right?", what, shortened(second.text), shortened(n.entries[0].key.text))
	}
	e := n.entries[0]
	if slices.Contains(kinds, e.key.text) {
		return e, len(n.entries) == 1
	}
	if what != eachKey && d.kinds.accepts(e.key.text, kinds) {
		return e, true
	}
	d.add(e.key, path, "unknown kind of %s %s, %s", what, shortened(e.key.text), d.instead(e.key.text, kinds, ""))
	return entry{}, false
}

func (d *decoder) pipelines(n *node, f *File) {
	if n.kind != mapping {
		d.add(n, pipelinesField, "must be a mapping of names to pipelines, found %v", n)
		return
	}
	d.named(n, pipelinesField, "pipelines")
	for _, e := range n.entries {
		f.pipelines = append(f.pipelines, d.onePipeline(e, child(pipelinesField, e.key.text)))
	}
}

func (d *decoder) onePipeline(e entry, path string) *pipelineModel {
	const field = "strategies"
	p := &pipelineModel{name: e.key.text}
	d.pipeline = p.name
	if e.value.kind != mapping {
		d.add(e.value, path, "must be a mapping with %s, found %v", field, e.value)
		return p
	}
	for _, of := range e.value.entries {
		if of.key.text != field {
			d.add(of.key, path, "unknown field %s, %s", shortened(of.key.text), d.instead(of.key.text, []string{field}, ""))
		}
	}
	strategies := e.value.get(field)
	path = child(path, field)
	switch {
	case strategies == nil:
		d.add(e.value, child(pipelinesField, e.key.text), "%s is missing: a list, outermost first", field)
	case strategies.kind != list:
		d.add(strategies, path, "must be a list of strategies, outermost first, found %v", strategies)
	default:
		d.strategies(strategies, path, p)
	}
	return p
}

// strategies decodes the strategies of p. Two of a name would be one in telemetry,
// and would share what the registry keeps by that name.
func (d *decoder) strategies(n *node, path string, p *pipelineModel) {
	first := make(map[string]*node)
	for i, item := range n.items {
		at := element(path, i)
		e, ok := d.oneKind(item, at, "strategy", d.kinds.strategyNames())
		if !ok {
			continue
		}
		s := &strategyModel{kind: e.key.text}
		at = child(at, s.kind)
		d.strategy(e, at, s)
		p.strategies = append(p.strategies, s)
		p.places = append(p.places, Problem{Line: e.key.line, Column: e.key.column, Path: at})
		named := cmp.Or(e.value.get("name"), e.key)
		if s.name == "" || named.kind != text {
			continue // it has no name, or one that is wrong
		}
		d.nameLength(named, at)
		if before := first[s.name]; before != nil {
			d.add(named, at, "the pipeline has a strategy called %s already, in line %d; give this one another name", shortened(s.name), before.line)
		} else {
			first[s.name] = e.key
		}
	}
}

func (d *decoder) strategy(e entry, path string, s *strategyModel) {
	kind := d.kinds.strategy(s.kind)
	switch {
	case kind == nil:
		return // it is accepted unknown
	case kind.decode != nil:
		kind.decode(d, e.value, path, s)
	default:
		s.options = d.decodeOptions(e.value, kind.options, path, nil)
	}
	s.name = kind.strategyName(s.options)
}
