package registry

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
)

// swap puts in force what the plan has built, with the definitions and removals of the change: all of it or nothing.
//
// A Reconfigure function can be the program's and take long, so limiters get their options without the mutex of the registry.
// Meanwhile only Close can come between: all else that takes versions in or out of force waits for the turn.
func (p *plan) swap() error {
	of := &p.registry.resources
	if err := of.reconfiguring.take(p.ctx, of.closed); err != nil {
		return err
	}
	defer of.reconfiguring.leave()
	versions, replaced, err := p.stage()
	if err != nil {
		return err
	}
	changes := changesFor(versions)
	for n, c := range changes {
		if err = c.reconfigureFrom(c.options, c.wanted); err != nil {
			err = &faultError{fmt.Errorf("registry: %v: %w", c.id, err), []id{c.by}}
			changes = changes[:n]
			break
		}
	}
	if err == nil {
		err = p.putInForce(versions, replaced, changes)
	}
	if err != nil {
		for _, c := range slices.Backward(changes) {
			_ = c.reconfigureFrom(c.wanted, c.options) // cannot fail: the options were in force
		}
	}
	return err
}

// stage returns the versions to put in force, which can be in force together, and the versions that they replace.
func (p *plan) stage() (versions, replaced []*version, err error) {
	p.registry.mu.Lock()
	defer p.registry.mu.Unlock()
	for _, v := range p.built {
		if !v.instance.removed {
			versions = append(versions, v)
		}
	}
	switch {
	case ctxerr.Closed(p.registry.closed):
		return nil, nil, ErrClosed
	case p.firstBuildOf != nil && p.firstBuildOf.removed:
		return nil, nil, fmt.Errorf("%w: %s", ErrRemoved, p.firstBuildOf.id)
	}
	replaced = p.replaced(versions)
	return versions, replaced, p.check(versions, replaced)
}

// An optionsChange gives a limiter the options of a use in place of those of its resource.
type optionsChange struct {
	*resourceUse

	by id // the pipeline that uses it
}

// changesFor returns the changes that the versions want of what is in this process. Kept values come first: they can refuse, and
// limits that are undone may have rejected waiters. Only a limiter that the program has closed refuses limits.
func changesFor(versions []*version) (changes []optionsChange) {
	seen := make(map[*resource]bool) // several versions can use it, with the same options
	for _, kept := range []bool{true, false} {
		for _, v := range versions {
			for _, u := range v.uses {
				if u.id.isKept() == kept && u.inStore == nil && u.options != u.wanted && !seen[u.resource] {
					seen[u.resource] = true
					changes = append(changes, optionsChange{u, v.instance.id})
				}
			}
		}
	}
	return changes
}

// putInForce puts the versions in force, whose limiters have their options, unless the registry was closed.
func (p *plan) putInForce(versions, replaced []*version, changes []optionsChange) error {
	r, now := p.registry, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	if ctxerr.Closed(r.closed) {
		return ErrClosed
	}
	for _, c := range changes {
		c.options = c.wanted
	}
	queueSharedLimits(versions, replaced)
	p.versions = versions
	// Handles change one after the other while executions run, that of a pipeline after those of the pipelines that it
	// contains: an execution that begins between the two finds a version of each pipeline that it uses.
	for _, v := range versions {
		i := v.instance
		old := i.handle.Put(v.prepared)
		if i.current != nil {
			i.info.LastReload, i.info.Err = now, nil
			p.retired = append(p.retired, r.drains.add(i.current, old))
		}
		if forgotten := r.drains.beingForgotten[i.id]; forgotten != nil {
			p.waitsFor = append(p.waitsFor, forgotten)
		}
		i.current, v.wasInForce, i.info.Built = v, true, now
		i.info.Version++
		for key, u := range v.uses {
			u.inForce++
			r.resources.byName[key] = u.resource
			if _, ok := u.value.(limiter.StatisticsProvider); ok && !u.observed && r.options.ObserveLimiter != nil {
				u.observed = true
				u.users++ // until observe has returned
				p.unobserved = append(p.unobserved, u.resource)
			}
			if u.onSwap != nil {
				u.onSwap()
			}
		}
		r.pipelines.ready.Store(i.id, i)
	}
	for name, f := range p.change.Define {
		r.pipelines.definitions[name].build = f
	}
	var removed []*instance
	for _, name := range p.change.Remove {
		d := r.pipelines.definitions[name]
		p.removed = append(p.removed, d.instancesHandedOut()...)
		removed = slices.AppendSeq(removed, maps.Values(d.instances))
		r.pipelines.remove(d)
	}
	p.retired = append(p.retired, r.drains.retire(ErrRemoved, removed...)...)
	return nil
}

// queueSharedLimits lets the store set new limits of limiters that stay, and those of a limiter that replaces an old one of the same
// name if the kind, the store or the limits have changed: a reload changes limits on purpose, while the first use of a limiter
// must not restore old ones. It is called when the versions can no longer fail, because other instances see new limits at once, and
// before they are in force.
func queueSharedLimits(versions, replaced []*version) {
	var was map[resourceKey]*resourceUse
	for _, v := range versions {
		for key, u := range v.uses {
			if u.inStore == nil {
				continue
			}
			if was == nil {
				was = make(map[resourceKey]*resourceUse)
				for _, v := range replaced {
					maps.Copy(was, v.uses)
				}
			}
			if old := was[key]; u.options != u.wanted || old != nil && !old.sameLimits(u) {
				_ = u.reconfigure(u.wanted) // fails only if the store or the limiter was closed
				u.options = u.wanted
			}
		}
	}
}

// check returns an error if the versions cannot be in force together with the versions that stay.
func (p *plan) check(versions, replaced []*version) error {
	if err := p.checkConflicts(versions, replaced); err != nil {
		return err
	}
	containing := slices.ContainsFunc(versions, func(v *version) bool { return len(v.contains) > 0 })
	if !containing && len(p.change.Remove) == 0 {
		return nil // there can be thousands of instances
	}
	return p.registry.pipelines.checkContained(versions, replaced)
}

// replaced returns the versions that the plan takes out of force.
func (p *plan) replaced(versions []*version) []*version {
	var all []*version
	add := func(i *instance) {
		if i.current != nil {
			all = append(all, i.current)
		}
	}
	for _, v := range versions {
		add(v.instance)
	}
	for _, name := range p.change.Remove {
		for _, i := range p.registry.pipelines.definitions[name].instances {
			add(i)
		}
	}
	return all
}

// staying returns the versions that stay in force.
func (n *pipelines) staying(replaced []*version) []*version {
	goes := make(map[*version]bool, len(replaced))
	for _, v := range replaced {
		goes[v] = true
	}
	var all []*version
	for _, i := range n.inForce() {
		if !goes[i.current] {
			all = append(all, i.current)
		}
	}
	return all
}

// checkConflicts returns an error if two versions would want different options of one resource. The versions in force have been
// compared with each other, and their resources have the options that they want.
func (p *plan) checkConflicts(versions, replaced []*version) error {
	count := func(n int) { // as if the replaced versions were not in force
		for _, v := range replaced {
			for _, u := range v.uses {
				u.inForce += n
			}
		}
	}
	count(-1)
	defer count(1)
	wantedBy := make(map[resourceKey]*version, len(versions))
	for _, v := range versions {
		for key, u := range v.uses {
			if len(versions) > 1 {
				if other := wantedBy[key]; other == nil {
					wantedBy[key] = v
				} else if o := other.uses[key]; o.resource != u.resource || o.wanted != u.wanted {
					return conflict(other.instance.id, o, v.instance.id, u)
				}
			}
			switch is := p.registry.resources.byName[key]; {
			case is == nil || is.inForce == 0 || is == u.resource && is.options == u.wanted:
			default:
				stays := p.registry.pipelines.staying(replaced)
				other := stays[slices.IndexFunc(stays, func(o *version) bool { return o.uses[key] != nil })]
				return conflict(v.instance.id, u, other.instance.id, other.uses[key])
			}
		}
	}
	return nil
}

// checkContained returns an error if a pipeline would contain itself, so that its executions would never end, or one that is
// removed or closed.
func (n *pipelines) checkContained(versions, replaced []*version) error {
	next, goes := make(byHandle), make(byHandle)
	for _, v := range replaced {
		goes.add(v)
	}
	versions = append(slices.Clone(versions), n.staying(replaced)...)
	for _, v := range versions {
		next.add(v)
	}
	visited := make(map[*version]bool)
	var path []id
	var visit func(v *version) error
	visit = func(v *version) (err error) {
		visited[v] = true
		path = append(path, v.instance.id)
		for _, p := range v.contains {
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
			case !v.wasInForce && p.Closed(): // since the build function has got it
				err = fmt.Errorf("%w: pipeline %s contains %s, which was removed or closed", ErrRemoved, v.instance.id, id{p.Name(), p.Instance()})
				err = &faultError{err, []id{v.instance.id}}
			}
		}
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
