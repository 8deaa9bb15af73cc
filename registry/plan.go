package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/recovered"
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
// One reload or first build runs at a time. Another one waits until it has ended, its own ctx ends or the registry is
// closed. In a [BuildFunc] it would wait for itself, and at an event of a reload it would report events without end: with
// [Builder.Context] or the context of an event of the registry, Reload returns [ErrReloading].
func (r *Registry) Reload(ctx context.Context, names ...string) error {
	p := newPlan(ctx, r)
	return p.run(func() error { return p.addDefined(names) })
}

// Apply defines, redefines and removes pipelines in one change: every pipeline that is defined is built, with all its
// instances, before anything changes, and if one fails, nothing changes. What [Registry.Reload] says about ctx,
// errors, events and calls at the same time also holds for Apply.
//
// The removal of a pipeline that Get or GetInstance has returned is reported as [EventRemoved].
func (r *Registry) Apply(ctx context.Context, c Change) error {
	p := newPlan(ctx, r)
	p.reportRemoved = true
	return p.runChange(c)
}

// Remove removes the definitions of those names with all their instances. See [Change.Remove]. If a name is unknown,
// the error is [ErrNotDefined], and nothing is removed.
func (r *Registry) Remove(ctx context.Context, names ...string) error {
	return newPlan(ctx, r).runChange(Change{Remove: names})
}

// A plan is one change, or a first build: it builds pipelines and puts them in force together.
type plan struct {
	registry      *Registry
	ctx           context.Context         //nolint:containedctx // a plan ends with the call
	firstBuildOf  *instance               // what a first build is for, which no event reports; nil: the plan is of a change
	told          chan struct{}           // closed when the Listener was told
	reportRemoved bool                    // report removed pipelines whose handles the program has
	change        Change                  // of Apply; Remove is sorted
	todo          map[*instance]BuildFunc // what it builds; nil: the build has begun
	built         []*version              // in their order: a pipeline after the pipelines that it contains
	faults        map[*instance]error     // why the change has failed, for each instance that is to blame

	// What has come into force, and is left for the time after the registry was unlocked.
	versions   []*version
	waitsFor   []<-chan struct{} // closed when Forget, which was called before, has returned
	retired    []*disposal
	removed    []*instance // the removed instances whose handles the program has
	unobserved []*resource
}

func newPlan(ctx context.Context, r *Registry) *plan {
	return &plan{
		registry: r, ctx: ctx, told: make(chan struct{}),
		todo: make(map[*instance]BuildFunc), faults: make(map[*instance]error),
	}
}

// runChange runs the plan of c.
func (p *plan) runChange(c Change) error {
	// A build function can modify the caller's map during the change, and a name can be listed twice.
	p.change = Change{maps.Clone(c.Define), slices.Compact(slices.Sorted(slices.Values(c.Remove)))}
	for _, name := range slices.Sorted(maps.Keys(p.change.Define)) {
		if err := checkDefinition(name, p.change.Define[name]); err != nil {
			return err
		}
		if _, removed := slices.BinarySearch(p.change.Remove, name); removed {
			return fmt.Errorf("registry: %q is both defined and removed", name)
		}
	}
	return p.run(p.addApplied)
}

// run waits for its turn, lets add say what to build, with the registry locked, builds it and puts it in force. Reports and
// disposals come when the next change can run already: a function of the program that does not return must not hold it up.
// Close waits for all of it.
func (p *plan) run(add func() error) error {
	r := p.registry
	if r.events.marked(p.ctx) {
		return fmt.Errorf("%w, and has called this function", ErrReloading)
	}
	if err := r.changing.take(p.ctx, r.closed); err != nil {
		return err
	}
	p.ctx = r.events.mark(p.ctx)
	r.mu.Lock()
	err := ErrClosed
	if !ctxerr.Closed(r.closed) {
		r.drains.waits.Add(1)
		defer r.drains.waits.Done()
		err = add()
	}
	r.mu.Unlock()
	if err == nil {
		err = p.build()
	}
	p.end(err)
	r.changing.leave()
	if len(p.waitsFor) == 0 {
		p.finish()
	} else { // Forget of the Listener can be what has called this function
		r.drains.waits.Go(p.finish)
	}
	return err
}

// addDefined adds the named pipelines, or all if there are no names.
func (p *plan) addDefined(names []string) error {
	of := &p.registry.pipelines
	if len(names) == 0 {
		names = slices.Collect(maps.Keys(of.definitions))
	}
	var errs []error
	for _, name := range slices.Compact(slices.Sorted(slices.Values(names))) {
		d, err := of.definition(name)
		if err == nil {
			p.add(d, d.build)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// addApplied adds the pipelines that Apply defines, and checks what it removes.
func (p *plan) addApplied() error {
	of := &p.registry.pipelines
	var errs []error
	for _, name := range p.change.Remove {
		_, err := of.definition(name)
		errs = append(errs, err)
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	for name, build := range p.change.Define {
		p.add(of.findOrAdd(name), build)
	}
	return nil
}

// add adds the instances of d that have a version and, if Apply defines d, that of Get.
func (p *plan) add(d *definition, build BuildFunc) {
	for _, i := range d.instances {
		if i.current != nil || i.instance == "" && p.change.Define[d.name] != nil {
			p.todo[i] = build
		}
	}
}

// build builds the instances and puts them in force. It goes on after a failure, to report all of them.
func (p *plan) build() error {
	var errs []error
	for _, i := range slices.SortedFunc(maps.Keys(p.todo), byID) { // a build can ask for one before its turn comes
		if p.ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("registry: reloading: %w", pipeline.ContextError(p.ctx)))
			break
		}
		p.buildInstance(i)
	}
	for _, v := range p.built {
		errs = append(errs, p.faults[v.instance])
	}
	if err := errors.Join(errs...); err != nil {
		return err
	}
	err := p.swap()
	p.blame(err)
	return err
}

// buildInstance builds one instance, once.
func (p *plan) buildInstance(i *instance) {
	f := p.todo[i]
	if f == nil {
		return
	}
	p.todo[i] = nil
	v, err := p.buildVersion(i, f)
	p.built = append(p.built, v)
	if err != nil {
		p.faults[i] = err
	}
}

// blame notes the instances because of which the versions cannot be in force together.
func (p *plan) blame(err error) {
	fault, ok := errors.AsType[*faultError](err)
	for _, v := range p.built {
		if ok && slices.Contains(fault.pipelines, v.instance.id) {
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
	maps.DeleteFunc(p.faults, func(i *instance, _ error) bool {
		return i.current == nil && i.info.Version > 0 // it was removed or closed meanwhile, and Forget can have been called
	})
	for i := range p.todo {
		if i.definition.build == nil {
			r.pipelines.remove(i.definition)
		}
		if err == nil || i.current == nil {
			continue
		}
		i.current.told = append(slices.DeleteFunc(i.current.told, ctxerr.Closed), p.told)
		i.info.LastReload, i.info.Err = now, p.faults[i]
		if i.info.Err == nil {
			i.info.Err = fmt.Errorf("registry: pipeline %s was not reloaded, because the reload failed: %w", i.id, err)
		}
	}
	if p.firstBuildOf != nil {
		r.pipelines.endFirstBuild(p.firstBuildOf, err)
	}
}

// finish tells the program what has changed and what has failed, disposes of what was replaced, and discards what has not come
// into force.
func (p *plan) finish() {
	r := p.registry
	for _, forgotten := range p.waitsFor {
		<-forgotten
	}
	r.resources.observe(p.unobserved, r.options.ObserveLimiter)
	for _, v := range p.versions {
		if inForce := r.events.hooks.InForce; inForce != nil {
			recovered.Hook("registry: Hooks.InForce", func() { inForce(v.instance.handle.Pipeline()) })
		}
	}
	if p.firstBuildOf == nil {
		p.report()
	}
	close(p.told)
	r.drains.start(p.retired)
	for _, v := range p.built {
		if !v.wasInForce {
			r.drains.discard(p.ctx, v)
		}
	}
}

// report reports the new versions, the removed pipelines whose handles the program has, and the failures.
func (p *plan) report() {
	r := p.registry
	for _, v := range p.versions {
		r.events.report(p.ctx, v.instance.source(), pipeline.Event{Name: EventReload, Severity: pipeline.SeverityInformation, Duration: v.took})
	}
	for _, i := range p.removed {
		if p.reportRemoved {
			err := fmt.Errorf("%w: %s, which the program uses", ErrRemoved, i.id)
			r.events.report(p.ctx, i.source(), pipeline.Event{Name: EventRemoved, Severity: pipeline.SeverityWarning, Err: err})
		}
	}
	for _, i := range slices.SortedFunc(maps.Keys(p.faults), byID) {
		r.events.failed(p.ctx, i.source(), EventReloadFailed, p.faults[i])
	}
}
