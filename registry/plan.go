package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/pipeline"
)

// A Change is what [Registry.Apply] does, as a whole or not at all.
type Change struct {
	// Define has the build functions of pipelines that are new or are to be built again, by another function or the
	// same one.
	Define map[string]BuildFunc
	// Remove names pipelines to remove. Executions on their handles return [ErrRemoved]. If a name is defined again,
	// the handle of [Registry.Get] works again; handles of other instances do not. If another pipeline contains one
	// of them, both must be removed together. A name that is listed twice counts once.
	Remove []string
}

// Reload builds the named pipelines again, all instances of each, and puts the new versions in force, all of them or
// none. Without names it builds all pipelines.
//
// If it fails, everything stays as it was, and later reloads are not affected. Each pipeline that could not be built,
// or whose build conflicts with another pipeline, is reported as [EventReloadFailed]. The error joins everything that
// went wrong; it is [ErrNotDefined] for an unknown name.
//
// Reload returns when the new versions are in force and the Listener was told. The old versions are drained and disposed of
// in the background. If ctx ends between two builds, the reload ends.
//
// One reload runs at a time. Another one waits until it has ended, its own ctx ends or the registry is closed. It would wait
// for itself in a [BuildFunc]: with [Builder.Context] it returns [ErrReloading] there, and also with the context of an event
// of the registry.
func (r *Registry) Reload(ctx context.Context, names ...string) error {
	p := r.newPlan(ctx)
	return p.run(func() error { return p.addDefined(names) })
}

// Apply defines, redefines and removes pipelines in one change: every pipeline that is defined is built, with all its
// instances, before anything changes, and if one fails, nothing changes. What [Registry.Reload] says about ctx,
// errors, events and calls at the same time also holds for Apply.
//
// The removal of a pipeline that Get or GetInstance has returned is reported as [EventRemoved].
func (r *Registry) Apply(ctx context.Context, c Change) error { return r.apply(ctx, c, true) }

// Remove removes the definitions of those names with all their instances. See [Change.Remove]. If a name is unknown,
// the error is [ErrNotDefined], and nothing is removed.
func (r *Registry) Remove(ctx context.Context, names ...string) error {
	return r.apply(ctx, Change{Remove: names}, false)
}

// apply is Apply. EventRemoved is reported only if reportRemoved.
func (r *Registry) apply(ctx context.Context, c Change, reportRemoved bool) error {
	p := r.newPlan(ctx)
	// A build function can modify the caller's map during the change, and a name can be listed twice.
	p.apply = Change{maps.Clone(c.Define), slices.Compact(slices.Sorted(slices.Values(c.Remove)))}
	p.reportRemoved = reportRemoved
	for _, name := range slices.Sorted(maps.Keys(p.apply.Define)) {
		if err := checkDefinition(name, p.apply.Define[name]); err != nil {
			return err
		}
		if _, removed := slices.BinarySearch(p.apply.Remove, name); removed {
			return fmt.Errorf("registry: %q is both defined and removed", name)
		}
		var err error
		if p.defaultNames[name], err = r.defaultInstanceName(name); err != nil {
			return err
		}
	}
	return p.run(p.addApplied)
}

// RemoveInstance removes an instance that [Registry.GetInstance] has made. Executions on its handle return
// [ErrRemoved] from then on; running executions go on to their end. The next GetInstance of that name makes a new
// instance with another handle. For the instance of [Registry.Get] it returns an error, because that one can only be
// removed with its definition. If there is no such instance, RemoveInstance does nothing.
func (r *Registry) RemoveInstance(name, instance string) error {
	r.mu.Lock()
	done, err := r.removeInstance(name, instance)
	r.mu.Unlock()
	r.afterSwap(done)
	return err
}

// removeInstance removes one instance. The caller holds r.mu.
func (r *Registry) removeInstance(name, instance string) (done swapped, err error) {
	if r.closed {
		return done, ErrClosed
	}
	d := r.definitions[name]
	if d == nil || d.instances[instance] == nil {
		return done, nil
	}
	i := d.instances[instance]
	if i.isDefault() {
		return done, fmt.Errorf("registry: %s is what Get returns: remove the pipeline instead", i.id)
	}
	i.removed = true
	delete(d.instances, instance)
	r.retire(&done, i, ErrRemoved)
	r.drainOuterFirst(done.retired)
	return done, nil
}

// A plan is one call of Reload or Apply: it builds pipelines and puts them in force together.
type plan struct {
	registry      *Registry
	ctx           context.Context   //nolint:containedctx // a plan ends with the call
	apply         Change            // of Apply; Remove is sorted
	defaultNames  map[string]string // of the pipelines that Apply defines
	reportRemoved bool              // report removed pipelines whose handles the program has
	affected      map[*definition]BuildFunc
	defaults      map[string]*instance // the default instances of the affected pipelines, by name
	begun         map[*instance]bool   // the instances whose builds have begun
	built         []*version           // in their order: a pipeline after the pipelines that it contains
	unbuilt       []*instance          // what stage has found
	errs          []error
	faults        map[*instance]error // why the change has failed, for each instance that is to blame
}

func (r *Registry) newPlan(ctx context.Context) *plan {
	return &plan{
		registry: r, ctx: ctx, defaultNames: make(map[string]string), affected: make(map[*definition]BuildFunc),
		defaults: make(map[string]*instance), begun: make(map[*instance]bool), faults: make(map[*instance]error),
	}
}

// run waits for its turn, lets add say what to build, with r.mu locked, builds it and puts it in force. Reports and disposals
// come when the next change can run already: a function of the program that does not return must not hold it up.
func (p *plan) run(add func() error) error {
	r := p.registry
	if r.marked(p.ctx) {
		return fmt.Errorf("%w, and waits for the function that has called this one", ErrReloading)
	}
	if err := r.take(p.ctx, r.changing); err != nil {
		return err
	}
	p.ctx = r.mark(p.ctx)
	var done swapped
	r.mu.Lock()
	err := add()
	if r.closed {
		err = ErrClosed
	}
	r.mu.Unlock()
	if err == nil {
		done, err = p.build()
	}
	p.end(err)
	<-r.changing
	r.afterSwap(done)
	p.report(done)
	return err
}

// take puts an element into one of the registry's channels of one element.
func (r *Registry) take(ctx context.Context, lock chan struct{}) error {
	select {
	case lock <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		<-lock
	case <-ctx.Done():
	case <-r.closing.called:
		return ErrClosed
	}
	return fmt.Errorf("registry: waiting for another change: %w", pipeline.ContextError(ctx))
}

// addDefined adds the named pipelines, or all if there are no names. The caller holds r.mu.
func (p *plan) addDefined(names []string) error {
	r := p.registry
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(r.definitions))
	}
	var errs []error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		d, err := r.findDefinition(name)
		if err == nil {
			p.add(d, d.build)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// addApplied adds the pipelines that Apply defines, and checks what it removes. The caller holds r.mu.
func (p *plan) addApplied() error {
	r := p.registry
	var errs []error
	for _, name := range p.apply.Remove {
		_, err := r.findDefinition(name)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for name, build := range p.apply.Define {
		d := r.findOrAddDefinition(name, p.defaultNames[name])
		d.planned = true
		p.add(d, build)
	}
	return nil
}

func (p *plan) add(d *definition, build BuildFunc) {
	p.affected[d] = build
	p.defaults[d.name] = d.findOrAdd(d.defaultInstance)
}

// build builds what the plan affects and puts it in force. It goes on after a failure, to report all of them. Instances that
// others ask for meanwhile are built, too.
func (p *plan) build() (swapped, error) {
	for {
		done, err := p.registry.swap(p.ctx, p.stage)
		if err != nil {
			p.blame(err)
		}
		if err != nil || len(p.unbuilt) == 0 {
			return done, err
		}
		for _, i := range p.unbuilt {
			if p.ctx.Err() != nil {
				err = fmt.Errorf("registry: reloading: %w", pipeline.ContextError(p.ctx))
				break
			}
			p.buildInstance(i)
		}
		if err = errors.Join(errors.Join(p.errs...), err); err != nil {
			return swapped{}, err
		}
	}
}

// stage returns what is to be put in force, for swap. If something is not built yet, ok is false. The caller holds r.mu.
func (p *plan) stage() (s staged, ok bool, err error) {
	if p.registry.closed {
		return s, false, ErrClosed
	}
	p.unbuilt = nil
	for d := range p.affected {
		for _, i := range d.instances {
			if (i.current != nil || i.firstBuild != nil || i == p.defaults[d.name]) && !p.begun[i] {
				p.unbuilt = append(p.unbuilt, i)
			}
		}
	}
	if len(p.unbuilt) > 0 {
		slices.SortFunc(p.unbuilt, byID)
		return s, false, nil
	}
	s.Define = p.apply.Define
	for _, name := range p.apply.Remove {
		if p.registry.definitions[name] != nil { // its first build can have failed meanwhile
			s.Remove = append(s.Remove, name)
		}
	}
	for _, v := range p.built {
		if !v.instance.removed {
			s.versions = append(s.versions, v)
		}
	}
	return s, true, nil
}

// buildInstance builds one instance, once.
func (p *plan) buildInstance(i *instance) {
	if p.begun[i] {
		return
	}
	p.begun[i] = true
	v, err := p.registry.build(p.ctx, i, p.affected[i.definition], p)
	p.built = append(p.built, v)
	if err != nil {
		p.faults[i] = err
		p.errs = append(p.errs, err)
	}
}

// blame notes the instances because of which the versions cannot be in force together.
func (p *plan) blame(err error) {
	if errors.Is(err, ErrClosed) {
		return
	}
	fault, known := errors.AsType[*faultError](err)
	for _, v := range p.built {
		if !known || slices.Contains(fault.pipelines, v.instance.id) {
			p.faults[v.instance] = err
		}
	}
}

// end forgets definitions that were only planned. If the plan has failed because of err, it records for each instance why it
// keeps its version.
func (p *plan) end(err error) {
	r, now := p.registry, time.Now()
	r.mu.Lock()
	defer r.mu.Unlock()
	for d := range p.affected {
		d.planned = false
		if d.build == nil && r.definitions[d.name] == d {
			r.removeDefinition(d)
		}
		for _, i := range d.instances {
			if err == nil || i.current == nil {
				continue
			}
			i.info.LastReload, i.info.Err = now, p.faults[i]
			if i.info.Err == nil {
				i.info.Err = fmt.Errorf("registry: pipeline %s was not reloaded, because the reload failed: %w", i.id, err)
			}
		}
	}
}

// report reports the new versions, the removed pipelines whose handles the program has, and the failures, and discards what has
// not come into force.
func (p *plan) report(done swapped) {
	r := p.registry
	for _, v := range done.versions {
		r.report(p.ctx, v.instance.id, pipeline.Event{Name: EventReload, Severity: pipeline.SeverityInformation, Duration: v.took})
	}
	r.reportKeptOverrides(p.ctx, done.versions)
	if p.reportRemoved {
		for _, i := range done.removed {
			err := fmt.Errorf("%w: %s, which the program uses", ErrRemoved, i.id)
			r.report(p.ctx, i.id, pipeline.Event{Name: EventRemoved, Severity: pipeline.SeverityWarning, Err: err})
		}
	}
	for _, i := range slices.SortedFunc(maps.Keys(p.faults), byID) {
		r.reportFailure(p.ctx, i.id, EventReloadFailed, p.faults[i])
	}
	for _, v := range p.built {
		if !v.swapped {
			r.discard(p.ctx, v)
		}
	}
}
