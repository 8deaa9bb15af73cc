package decode

import (
	"github.com/weir-go/weir/reload/internal/document"
	"github.com/weir-go/weir/reload/internal/model"
)

// resolveReferences sets the pointers of the model for the names of limiters and budgets. It refuses unknown names,
// cycles, and rate limiters with options that their limiter does not support.
func (d *decoder) resolveReferences() {
	var chains, embedded []reference
	limiters := collect("limiter", d.file.Limiters, func(l *model.Limiter) string { return l.Name })
	d.file.LimiterNamed = limiters.byName
	budgets := collect("budget", d.file.Budgets, func(b *model.Budget) string { return b.Name })
	pipelines := collect("pipeline", d.file.Pipelines, func(p *model.Pipeline) string { return p.Name })
	for _, l := range d.file.Limiters {
		chains = append(chains, d.resolveChain(l, limiters)...)
	}
	for _, p := range d.file.Pipelines {
		for _, s := range p.Strategies {
			n := d.nodes[s]
			switch s.Options.(type) {
			case model.RateLimiterOptions:
				if l := find(d, n.Get(model.LimiterField), limiters); l != nil {
					s.Limiter = l
				} else if s.Limiter != nil {
					d.resolveChain(s.Limiter, limiters)
				}
			case model.RetryOptions, model.HedgingOptions:
				s.Budget = find(d, n.Get("budget"), budgets)
			case model.PipelineOptions:
				if name := n.Get("name"); find(d, name, pipelines) != nil {
					embedded = append(embedded, reference{name, p.Name})
				}
			}
		}
	}
	before := len(d.Problems)
	d.refuseCycles("limiter", limiters.names, chains)
	if len(d.Problems) == before {
		d.checkChainLengths(limiters.names, chains)
	}
	if len(d.Problems) == before {
		d.checkAdaptive()
	}
	d.refuseCycles("pipeline", pipelines.names, embedded)
}

// A reference is the name of a chain's member, or of a pipeline that another pipeline embeds. References can form
// cycles.
type reference struct {
	*document.Node
	from string // the name of the chain or pipeline
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
	if n == nil || n.Kind != document.Text {
		return nil
	}
	found := in.byName[n.Text]
	if found == nil {
		d.Add(n, "there is no %s %s, %s", in.what, document.Quoted(n.Text), d.Instead(n.Text, in.names, "the file has no "+in.what+"s"))
	}
	return found
}

// resolveChain sets the members of a chain and returns the references that were found. For any other limiter it does
// nothing.
func (d *decoder) resolveChain(l *model.Limiter, limiters collection[model.Limiter]) (members []reference) {
	list := d.nodes[l]
	if list == nil {
		return nil
	}
	for _, item := range list.Items {
		if m := find(d, item, limiters); m != nil {
			l.Members = append(l.Members, m)
			members = append(members, reference{item, l.Name})
		}
	}
	return members
}

// checkAdaptive refuses rate limiters with options that their limiter does not support. There must be no cycles.
func (d *decoder) checkAdaptive() {
	for _, p := range d.file.Pipelines {
		for _, s := range p.Strategies {
			o, ok := s.Options.(model.RateLimiterOptions)
			if !ok || s.Limiter == nil {
				continue
			}
			if shadow := d.nodes[s].Get("shadow"); o.Shadow && s.Limiter.Adapts() {
				d.Add(shadow, "cannot be used with an adaptive limiter or a throttler, which must see all executions to learn from them")
			}
			if handle := d.nodes[s].Get("handle"); o.Handle != "" && !s.Limiter.CanAdapt() {
				d.Add(handle, "only an adaptive limiter or a throttler needs the outcomes of executions, this limiter is neither")
			}
		}
	}
}
