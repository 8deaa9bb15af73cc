package registry

import (
	"fmt"
	"slices"

	"github.com/weir-go/weir/pipeline"
)

// check returns an error if s cannot be in force together with the other versions. The caller holds r.mu.
func (r *Registry) check(s staged) error {
	replaced := r.replaced(s)
	if err := r.checkConflicts(s, replaced); err != nil {
		return err
	}
	containing := slices.ContainsFunc(s.versions, func(v *version) bool { return len(v.contains) > 0 })
	if !containing && len(s.Remove) == 0 {
		return nil // there can be thousands of instances
	}
	return r.checkContained(s, replaced)
}

// replaced returns the versions that s takes out of force. The caller holds r.mu.
func (r *Registry) replaced(s staged) []*version {
	var all []*version
	add := func(i *instance) {
		if i.current != nil {
			all = append(all, i.current)
		}
	}
	for _, v := range s.versions {
		add(v.instance)
	}
	for _, name := range s.Remove {
		for _, i := range r.definitions[name].instances {
			add(i)
		}
	}
	return all
}

// staying returns the versions that stay in force. The caller holds r.mu.
func (r *Registry) staying(replaced []*version) []*version {
	goes := make(map[*version]bool, len(replaced))
	for _, v := range replaced {
		goes[v] = true
	}
	var all []*version
	for _, i := range r.instancesInForce() {
		if !goes[i.current] {
			all = append(all, i.current)
		}
	}
	return all
}

// checkConflicts returns an error if two versions would want different options of one resource. The versions in force have been
// compared with each other, and their resources have the options that they want. The caller holds r.mu.
func (r *Registry) checkConflicts(s staged, replaced []*version) error {
	count := func(n int) { // as if the replaced versions were not in force
		for _, v := range replaced {
			for _, u := range v.uses {
				u.inForce += n
			}
		}
	}
	count(-1)
	defer count(1)
	first := make(map[resourceKey]*version, len(s.versions))
	for _, v := range s.versions {
		for key, u := range v.uses {
			if len(s.versions) > 1 {
				if other := first[key]; other == nil {
					first[key] = v
				} else if o := other.uses[key]; o.resource != u.resource || o.options != u.options {
					return conflict(other.instance.id, o, v.instance.id, u)
				}
			}
			if is := r.inForce[key]; is != nil && is.inForce > 0 && (is != u.resource || is.options != u.options) {
				stays := r.staying(replaced)
				other := stays[slices.IndexFunc(stays, func(o *version) bool { return o.uses[key] != nil })]
				return conflict(v.instance.id, u, other.instance.id, other.uses[key])
			}
		}
	}
	return nil
}

// conflict returns the error of pipelines a and b, which want different kinds or options of one resource. It shows the options
// of limiters, and not those of the program, which can be secret.
func conflict(a id, ua *resourceUse, b id, ub *resourceUse) error {
	err := fmt.Errorf("%w: %v: pipelines %s and %s want different options", ErrLimiterConflict, ua.id.resourceKey, a, b)
	if !ua.id.isKept() {
		err = fmt.Errorf("%w: %v: pipeline %s wants a %s with %v, pipeline %s wants a %s with %v",
			ErrLimiterConflict, ua.id.resourceKey, a, ua.id.kind, ua.options, b, ub.id.kind, ub.options)
		if ua.id.kind == ub.id.kind && ua.options == ub.options {
			err = fmt.Errorf("%w, in another store or with other types", err)
		}
	}
	return &faultError{err, []id{a, b}}
}

// checkContained returns an error if a pipeline would contain itself, so that its executions would never end, or one that is
// removed or closed. The caller holds r.mu.
func (r *Registry) checkContained(s staged, replaced []*version) error {
	next, goes := make(byHandle), make(byHandle)
	for _, v := range replaced {
		goes.add(v)
	}
	versions := append(slices.Clone(s.versions), r.staying(replaced)...)
	for _, v := range versions {
		next.add(v)
	}
	visited := make(map[*version]bool)
	var path []id
	var visit func(v *version) error
	visit = func(v *version) (err error) {
		visited[v] = true
		path = append(path, v.instance.id)
		walk(v.contains, func(p *pipeline.Pipeline) (known bool) {
			inner := next[p]
			switch {
			case err != nil:
			case inner != nil && slices.Contains(path, inner.instance.id):
				err = fmt.Errorf("%w: %s contains %s", ErrCycle, v.instance.id, inner.instance.id)
				err = &faultError{err, path[slices.Index(path, inner.instance.id):]}
			case inner != nil && !visited[inner]:
				err = visit(inner)
			case inner != nil:
			case goes[p] != nil:
				err = fmt.Errorf("registry: %s cannot be removed: pipeline %s contains it", goes[p].instance.id, v.instance.id)
				err = &faultError{err, []id{v.instance.id}}
			case !v.swapped && p.Closed(): // since the build function has got it
				err = fmt.Errorf("%w: pipeline %s contains %s, which was removed or closed", ErrRemoved, v.instance.id, id{p.Name(), p.Instance()})
				err = &faultError{err, []id{v.instance.id}}
			}
			return inner != nil
		})
		path = path[:len(path)-1]
		return err
	}
	for _, v := range versions {
		if !visited[v] {
			if err := visit(v); err != nil {
				return err
			}
		}
	}
	return nil
}

// A byHandle finds versions by the handle of their pipeline.
type byHandle map[*pipeline.Pipeline]*version

func (h byHandle) add(v *version) { h[v.instance.handle.Pipeline()] = v }

// walk calls f with each of the pipelines and, unless f returns true, with the pipelines that are embedded in it.
func walk(pipelines []*pipeline.Pipeline, f func(*pipeline.Pipeline) bool) {
	for _, p := range pipelines {
		if f(p) {
			continue
		}
		var strategies []pipeline.Strategy
		for _, s := range p.Strategies() {
			strategies = append(strategies, s)
		}
		walk(contained(strategies), f)
	}
}

// contained returns the pipelines that are embedded directly among the strategies.
func contained(strategies []pipeline.Strategy) []*pipeline.Pipeline {
	var all []*pipeline.Pipeline
	for _, s := range strategies {
		if e, ok := s.(interface{ Pipeline() *pipeline.Pipeline }); ok {
			all = append(all, e.Pipeline())
		}
	}
	return all
}
