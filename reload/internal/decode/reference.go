package decode

import (
	"slices"
	"strings"

	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

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
				if l := find(d, n.Get(model.LimiterField), limiters); l != nil {
					s.Limiter = l
				} else if s.Limiter != nil {
					d.resolveChain(s.Limiter, limiters)
				}
				if s.Limiter != nil {
					d.checkAdaptive(n, o, s.Limiter)
				}
			case model.RetryOptions, model.HedgingOptions:
				s.Budget = find(d, n.Get("budget"), budgets)
			case model.PipelineOptions:
				if name := n.Get("name"); find(d, name, pipelines) != nil {
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

// A collection is all limiters, budgets or pipelines of the file.
type collection[T any] struct {
	what   string
	names  []string // in the order of the file
	byName map[string]*T
}

func collect[T any](what string, all []*T, name func(*T) string) collection[T] {
	c := collection[T]{what: what, byName: make(map[string]*T, len(all))}
	for _, one := range all {
		c.names = append(c.names, name(one))
		c.byName[name(one)] = one
	}
	return c
}

// find returns the element that n names. If there is none, find adds a problem and returns nil. Without a problem, it
// also returns nil if n is nil, because the file leaves the field out, and if n is no text, which decoding n has
// reported.
func find[T any](d *decoder, n *document.Node, in collection[T]) *T {
	if n == nil || n.Tag != document.Text {
		return nil
	}
	found := in.byName[n.Value]
	if found == nil {
		d.Add(n, "there is no %s %s, %s", in.what, document.Quoted(n.Value), d.Instead(n.Value, in.names, "the file has no "+in.what+"s"))
	}
	return found
}

// resolveChain sets the members of a chain. For any other limiter it does nothing.
func (d *decoder) resolveChain(l *model.Limiter, limiters collection[model.Limiter]) {
	list := d.nodes[l]
	if list == nil {
		return
	}
	for item := range list.Children() {
		switch m := find(d, item, limiters); {
		case m == nil:
		case m.Kind == model.ChainKind:
			d.Add(item, "%s is a chain, and a chain has limiters, not chains: list the members of %[1]s instead", document.Quoted(m.Name))
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
		d.Add(n.Get("shadow"), "cannot be used with an adaptive limiter or a throttler, which must see all executions to learn from them")
	}
	if o.Handle != "" && !l.CanAdapt() {
		d.Add(n.Get("handle"), "only an adaptive limiter or a throttler needs the outcomes of executions, this limiter is neither")
	}
}

// refuseCycles adds a problem for each name with which a pipeline embeds itself.
func (d *decoder) refuseCycles(names []string, embedded map[string][]*document.Node) {
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
				d.Add(n, "a pipeline cannot contain itself: %s", strings.Join(cycle, " -> "))
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
