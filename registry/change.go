package registry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/goroutine"
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
// none. Without names it builds all pipelines that have been built. A pipeline that has not been built is left alone.
//
// If it fails, everything stays as it was, and later reloads are not affected. Each pipeline that could not be built,
// or whose build conflicts with another pipeline, is reported as [EventReloadFailed]. The error joins everything that
// went wrong; it is [ErrNotDefined] for an unknown name.
//
// Reload returns when the new versions are in force. The old versions are drained and disposed of in the background.
// If ctx ends between two builds, the reload ends.
//
// One reload runs at a time. Another one waits for it, until its own ctx ends or the registry is closed. After 10 s of
// waiting for the same reload, it returns [ErrReloading], because that reload may be waiting for it. If a build
// function, a first build included, or a Listener of a reload calls Reload on its own goroutine, Reload returns
// ErrReloading at once.
func (r *Registry) Reload(ctx context.Context, names ...string) error {
	return r.change(ctx, func(c *change) error { return c.planReload(names) })
}

// Apply defines, redefines and removes pipelines in one change: every pipeline that is defined is built, with all its
// instances, before anything changes, and if one fails, nothing changes. What [Registry.Reload] says about ctx,
// errors, events and calls at the same time also holds for Apply.
//
// The removal of a pipeline that Get or GetInstance has returned is reported as [EventRemoved].
func (r *Registry) Apply(ctx context.Context, c Change) error { return r.apply(ctx, c, true) }

// apply is Apply. EventRemoved is reported only if reportRemoved.
func (r *Registry) apply(ctx context.Context, want Change, reportRemoved bool) error {
	// A build function can modify the caller's map during the change, and a name can be listed twice.
	define, remove := maps.Clone(want.Define), slices.Compact(slices.Sorted(slices.Values(want.Remove)))
	for _, name := range slices.Sorted(maps.Keys(define)) {
		if err := checkDefinition(name, define[name]); err != nil {
			return err
		}
		if _, removed := slices.BinarySearch(remove, name); removed {
			return fmt.Errorf("registry: %q is both defined and removed", name)
		}
	}
	return r.change(ctx, func(c *change) error {
		c.define, c.remove, c.reportRemoved = define, remove, reportRemoved
		return c.planDefinitions()
	})
}

// A change builds pipelines and puts them in force together. It is one call of Reload or Apply.
type change struct {
	registry      *Registry
	ctx           context.Context //nolint:containedctx // a change ends with the call
	goid          uint64          // the goroutine of the call
	define        map[string]BuildFunc
	remove        []string // sorted
	reportRemoved bool     // report removed pipelines whose handles the program has
	affected      []*definition
	defaults      map[string]*instance   // the default instances of the pipelines to define, by name
	missing       []*instance            // the instances that stage has found unbuilt
	versions      map[*instance]*version // the builds that are not in force yet
	faults        map[*instance]error    // why the change has failed, for each instance that is to blame
}

// change waits for its turn, lets plan say what to build, builds it and puts it in force.
func (r *Registry) change(ctx context.Context, plan func(*change) error) error {
	goid := goroutine.ID()
	if r.changesOn(goid) {
		return fmt.Errorf("%w on this goroutine, which would wait for itself", ErrReloading)
	}
	if err := r.slot.take(ctx, goid, r.closing.called); err != nil {
		return err
	}
	defer r.slot.release()
	c := &change{
		registry: r, ctx: ctx, goid: goid, defaults: make(map[string]*instance), versions: make(map[*instance]*version),
		faults: make(map[*instance]error),
	}
	defer c.abandon() // also if a build function calls runtime.Goexit
	if err := plan(c); err != nil {
		return err
	}
	err := errBuildLeft // stays if a function of the program calls runtime.Goexit
	defer func() {
		if err != nil {
			c.recordFailure(err)
		}
	}()
	err = c.run()
	return err
}

// changesOn reports whether a change or a first build runs on the goroutine goid. If it does, a function that it runs,
// such as a build function or a Listener, has called Reload, which would wait for its own end.
func (r *Registry) changesOn(goid uint64) bool {
	if goid == 0 {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.slot.goid.Load() == goid || r.firstBuilds[goid] != nil
}

// run builds the instances that the plan affects and puts the builds in force. If instances have been added in the
// meantime, it builds them, too.
func (c *change) run() error {
	r := c.registry
	for {
		done, err := r.commit(c.goid, c.stage)
		switch {
		case errors.Is(err, errMissing):
			if err := c.build(c.missing); err != nil {
				return err
			}
			continue
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			c.reportFault(err)
			return err
		}
		for _, v := range done.versions {
			delete(c.versions, v.instance) // abandon discards the rest
		}
		r.afterCommit(c.ctx, done)
		c.report(done)
		return nil
	}
}

// errMissing means that the change first has to build the instances in missing.
var errMissing = errors.New("registry: not everything is built")

// stage returns the builds, definitions and removals of the change, for commit. The caller holds r.mu.
func (c *change) stage() (staged, error) {
	if c.registry.closed {
		return staged{}, ErrClosed
	}
	if c.missing = c.unbuilt(); len(c.missing) > 0 {
		return staged{}, errMissing
	}
	found := staged{define: c.define, remove: c.remove}
	for i, v := range c.versions {
		if !i.removed {
			found.versions = append(found.versions, v)
		}
	}
	slices.SortFunc(found.versions, func(a, b *version) int { return byID(a.instance, b.instance) })
	return found, nil
}

// unbuilt returns the instances that are still to be built. The caller holds r.mu.
func (c *change) unbuilt() []*instance {
	var missing []*instance
	for _, d := range c.affected {
		for _, i := range d.instances {
			if (i.current != nil || i.firstBuild.overtaken() || i == c.defaults[d.name]) && c.versions[i] == nil {
				missing = append(missing, i)
			}
		}
	}
	slices.SortFunc(missing, byID)
	return missing
}

// report reports the new versions, and the removed pipelines whose handles the program has.
func (c *change) report(done committed) {
	for _, v := range done.versions {
		c.registry.reportReload(c.ctx, v)
	}
	c.registry.reportKeptOverrides(c.ctx, done.versions)
	if c.reportRemoved {
		for _, i := range done.removed {
			c.registry.reportRemoved(c.ctx, i.id)
		}
	}
}

// build builds the missing instances. If one fails, it goes on, to report all failures.
func (c *change) build(missing []*instance) error {
	var errs []error
	for _, i := range missing {
		if c.ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("registry: reloading: %w", pipeline.ContextError(c.ctx)))
			break
		}
		errs = append(errs, c.rebuild(i))
	}
	return errors.Join(errs...)
}

// rebuild builds one instance, and reports a failure.
func (c *change) rebuild(i *instance) (err error) {
	err = errBuildLeft // stays if the build function calls runtime.Goexit
	defer func() {
		if err != nil {
			c.faults[i] = err
			c.registry.reportFailure(c.ctx, i.id, EventReloadFailed, err)
		}
	}()
	began := time.Now()
	v, err := c.registry.build(i, c.buildFunc(i.definition), c, nil)
	if err != nil {
		return err
	}
	v.took = time.Since(began)
	c.versions[i] = v
	return nil
}

// buildFunc returns the build function that the change defines for d, or else the one that d has.
func (c *change) buildFunc(d *definition) BuildFunc {
	if f := c.define[d.name]; f != nil {
		return f
	}
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	return d.build
}

// reportFault reports err for the pipelines that are to blame for it.
func (c *change) reportFault(err error) {
	fault, known := errors.AsType[*faultError](err)
	for _, i := range slices.SortedFunc(maps.Keys(c.versions), byID) {
		if !known || slices.Contains(fault.pipelines, i.id) {
			c.faults[i] = err
			c.registry.reportFailure(c.ctx, i.id, EventReloadFailed, err)
		}
	}
}

// abandon discards the builds that have not come into force.
func (c *change) abandon() {
	defer c.dropEmptyDefinitions()
	for _, v := range c.versions {
		// Deferred, so that each is discarded even if a function of another one calls runtime.Goexit.
		defer func() { _ = c.registry.discard(c.ctx, v) }() // reported
	}
}
