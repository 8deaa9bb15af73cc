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
	// the handle of [Registry.Get] works again; handles of other instances do not. A pipeline that another one
	// contains can only be removed together with that. A name that is listed twice counts once.
	Remove []string
}

// Reload builds the named pipelines again, all instances of each, and puts the new versions in force, all of them or
// none. Without names it builds all pipelines that have been built. A pipeline that has not been built is left alone.
//
// If it fails, everything stays as it was, and later reloads are not affected. Each pipeline that could not be built,
// or whose build is at odds with another pipeline, is reported as [EventReloadFailed]. The error joins everything
// that went wrong; it is [ErrNotDefined] for an unknown name.
//
// Reload returns when the new versions are in force. The old versions are drained and disposed of in the background.
// If ctx ends between two builds, the reload ends.
//
// One reload runs at a time. Another one waits for it until its own ctx ends, the registry is closed, or it has
// waited 10 s for the same reload; then it returns [ErrReloading], because that reload may be waiting for it. If a
// build function, a first build included, or a Listener of a reload calls Reload on its own goroutine, Reload returns
// ErrReloading at once.
func (r *Registry) Reload(ctx context.Context, names ...string) error {
	return r.change(ctx, func(c *change) error { return c.reload(names) })
}

// Apply defines, redefines and removes pipelines in one change: every pipeline that is defined is built, with all its
// instances, before anything changes, and if one fails, nothing changes. In all other respects it is
// [Registry.Reload].
//
// The removal of a pipeline that Get or GetInstance has returned is reported as [EventRemoved].
func (r *Registry) Apply(ctx context.Context, c Change) error { return r.apply(ctx, c, true) }

func (r *Registry) apply(ctx context.Context, c Change, warn bool) error {
	// A build function can modify the caller's map during the change, and a name can be listed twice.
	c = Change{Define: maps.Clone(c.Define), Remove: unique(c.Remove)}
	removed := setOf(c.Remove)
	for _, name := range slices.Sorted(maps.Keys(c.Define)) {
		if err := checkDefinition(name, c.Define[name]); err != nil {
			return err
		}
		if removed[name] {
			return fmt.Errorf("registry: %q is both defined and removed", name)
		}
	}
	return r.change(ctx, func(made *change) error {
		made.reportLost = warn
		return made.apply(c)
	})
}

// A change builds pipelines and puts them in force together. It is one call of Reload or Apply.
type change struct {
	registry   *Registry
	ctx        context.Context //nolint:containedctx // a change ends with the call
	goroutine  uint64          // the goroutine of the call, see [Registry.changesOn]
	define     map[string]BuildFunc
	remove     []string
	reportLost bool // report removed pipelines whose handles the program has
	affected   []*definition
	defaults   map[string]*instance // the default instances of the pipelines to build, by name
	builds     map[*instance]*build
	took       map[*instance]time.Duration
}

// change waits for its turn, lets plan say what to build, builds it and puts it in force.
func (r *Registry) change(ctx context.Context, plan func(*change) error) error {
	here := goroutine.ID()
	if r.changesOn(here) {
		return fmt.Errorf("%w on this goroutine, which would wait for itself", ErrReloading)
	}
	if err := r.takeSlot(ctx); err != nil {
		return err
	}
	defer r.leaveSlot()
	r.changing.Store(here)
	c := &change{
		registry:  r,
		ctx:       ctx,
		goroutine: here,
		defaults:  make(map[string]*instance),
		builds:    make(map[*instance]*build),
		took:      make(map[*instance]time.Duration),
	}
	defer c.abandon() // also if a build function calls runtime.Goexit
	if err := plan(c); err != nil {
		return err
	}
	return c.run()
}

// changesOn reports whether a change or a first build runs on the goroutine here. If it does, its build function has
// called Reload, which would wait for its own end.
func (r *Registry) changesOn(here uint64) bool {
	if here == 0 {
		return false
	}
	if r.changing.Load() == here {
		return true
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.firstBuilds[here] != nil
}

// maxWait is how long a change waits for one that does not end. Without it, a build function that waits for a Reload
// on another goroutine would never return.
const maxWait = 10 * time.Second

// takeSlot waits until no other change runs.
func (r *Registry) takeSlot(ctx context.Context) error {
	stuck := time.NewTimer(maxWait)
	defer stuck.Stop()
	for {
		ended := r.changes.Load()
		select {
		case r.slot <- struct{}{}:
			if ctx.Err() == nil {
				return nil
			}
			<-r.slot // the context had ended, too
			return fmt.Errorf("registry: before reloading: %w", pipeline.ContextError(ctx))
		case <-ctx.Done():
			return fmt.Errorf("registry: before reloading: %w", pipeline.ContextError(ctx))
		case <-r.closeCalled:
			return ErrClosed
		case <-stuck.C:
			if r.changes.Load() == ended {
				return fmt.Errorf("%w, and has not ended for %v", ErrReloading, maxWait)
			}
			stuck.Reset(maxWait)
		}
	}
}

func (r *Registry) leaveSlot() {
	r.changing.Store(0)
	r.changes.Add(1)
	<-r.slot
}

// reload plans to build those names again; without names, all that have been built.
func (c *change) reload(names []string) error {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(names) == 0 {
		names = slices.Sorted(maps.Keys(r.definitions))
		names = slices.DeleteFunc(names, func(n string) bool { return r.definitions[n].build == nil })
	}
	var errs []error
	if r.closed {
		return ErrClosed
	}
	seen := make(map[*definition]bool, len(names))
	for _, name := range names {
		d, err := r.defined(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !seen[d] {
			seen[d] = true
			c.affected = append(c.affected, d)
			d.markOutdated()
		}
	}
	return errors.Join(errs...)
}

// apply plans the definitions and removals of want.
func (c *change) apply(want Change) error {
	r := c.registry
	usual := make(map[string]string, len(want.Define))
	for name := range want.Define {
		var err error
		if usual[name], err = r.defaultInstance(name); err != nil {
			return err
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return ErrClosed
	}
	var errs []error
	for _, name := range want.Remove {
		if _, err := r.defined(name); err != nil {
			errs = append(errs, err)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	c.define, c.remove = want.Define, want.Remove
	for _, name := range slices.Sorted(maps.Keys(want.Define)) {
		d := r.definition(name, usual[name])
		if d.instances[d.defaultInstance] == nil {
			d.add(d.defaultInstance)
		}
		c.defaults[name] = d.instances[d.defaultInstance]
		c.affected = append(c.affected, d)
	}
	return nil
}

// run builds what is to be built and puts it in force. If instances have been added meanwhile, it builds them first.
func (c *change) run() error {
	r := c.registry
	for {
		r.mu.Lock()
		missing, closed := c.unbuilt(), r.closed
		r.mu.Unlock()
		if closed {
			return ErrClosed
		}
		if err := c.build(missing); err != nil {
			return err
		}
		done, err := r.commit(c.goroutine, c.staged)
		switch {
		case errors.Is(err, errMissing):
			continue
		case errors.Is(err, ErrClosed):
			return err
		case err != nil:
			return c.failed(err)
		}
		c.keepCommitted(done)
		r.afterCommit(done)
		c.report(done)
		return nil
	}
}

// errMissing means that instances have been added that the change has to build, too.
var errMissing = errors.New("registry: not everything is built")

// report reports the new versions, and the removed pipelines whose handles the program has.
func (c *change) report(done commitResult) {
	for _, b := range done.builds {
		c.registry.reportReload(c.ctx, b.instance.id, b.instance.handle.Pipeline(), c.took[b.instance])
	}
	if !c.reportLost {
		return
	}
	for _, i := range done.lost {
		c.registry.reportLost(c.ctx, i.id)
	}
}

// unbuilt returns the instances that are still to be built. The caller holds r.mu.
func (c *change) unbuilt() []*instance {
	var missing []*instance
	for _, d := range c.affected {
		for _, i := range d.instances {
			_, asked := c.define[d.name]
			if (i.current != nil || i.firstBuild.overtaken() || asked && i == c.defaults[d.name]) && c.builds[i] == nil {
				missing = append(missing, i)
			}
		}
	}
	slices.SortFunc(missing, func(a, b *instance) int { return compare(a.id, b.id) })
	return missing
}

// build builds all of them, also if some fail.
func (c *change) build(missing []*instance) error {
	var errs []error
	for _, i := range missing {
		if c.ctx.Err() != nil {
			errs = append(errs, fmt.Errorf("registry: reloading: %w", pipeline.ContextError(c.ctx)))
			break
		}
		if err := c.rebuild(i); err != nil {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...)
}

// rebuild builds one instance, and reports a failure.
func (c *change) rebuild(i *instance) (err error) {
	err = errBuildLeft // stays if the build function calls runtime.Goexit
	defer func() {
		if err != nil {
			c.registry.reportFailure(c.ctx, i.id, EventReloadFailed, err)
		}
	}()
	began := time.Now()
	b, err := c.registry.build(i, c.buildFunc(i.definition), c, nil)
	if err != nil {
		return err
	}
	c.builds[i], c.took[i] = b, time.Since(began)
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

// staged returns what is to come into force. The caller holds r.mu.
func (c *change) staged() (staged, error) {
	if c.registry.closed {
		return staged{}, ErrClosed
	}
	if len(c.unbuilt()) > 0 {
		return staged{}, errMissing
	}
	found := staged{define: c.define, remove: c.remove}
	for i, b := range c.builds {
		if !i.removed {
			found.builds = append(found.builds, b)
		}
	}
	slices.SortFunc(found.builds, func(a, b *build) int { return compare(a.instance.id, b.instance.id) })
	return found, nil
}

// keepCommitted takes the builds that are in force from abandon, which discards the rest.
func (c *change) keepCommitted(done commitResult) {
	for _, b := range done.builds {
		delete(c.builds, b.instance)
	}
}

// failed reports err for the pipelines that are to blame for it: their builds have not come into force.
func (c *change) failed(err error) error {
	instances := slices.SortedFunc(maps.Keys(c.builds), func(a, b *instance) int { return compare(a.id, b.id) })
	fault, known := errors.AsType[*faultError](err)
	for _, i := range instances {
		if known && !slices.Contains(fault.pipelines, i.id) {
			continue
		}
		c.registry.reportFailure(c.ctx, i.id, EventReloadFailed, err)
	}
	return err
}

// abandon discards the builds that have not come into force.
func (c *change) abandon() {
	defer c.dropEmptyDefinitions()
	for _, b := range c.builds {
		// Deferred, so that each is discarded even if a function of another one calls runtime.Goexit.
		defer func() { _ = c.registry.discard(c.ctx, b) }() // reported
	}
}

// dropEmptyDefinitions removes the definitions that apply has added and that have no build function, because the
// change has failed.
func (c *change) dropEmptyDefinitions() {
	r := c.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range c.define {
		if d := r.definitions[name]; d != nil && d.build == nil {
			r.removeDefinition(d)
		}
	}
}

// unique returns the names in their order, each once.
func unique(names []string) []string {
	seen := make(map[string]bool, len(names))
	var once []string
	for _, name := range names {
		if !seen[name] {
			seen[name] = true
			once = append(once, name)
		}
	}
	return once
}

func setOf(names []string) map[string]bool {
	set := make(map[string]bool, len(names))
	for _, name := range names {
		set[name] = true
	}
	return set
}
