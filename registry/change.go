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
	// A build function may change the caller's map while its change is under way, and a name may be there twice.
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

// A change builds pipelines and puts them in force together.
type change struct {
	registry   *Registry
	ctx        context.Context //nolint:containedctx // of the one call that it is part of
	goroutine  uint64          // the goroutine of that call
	define     map[string]BuildFunc
	remove     []string
	reportLost bool // of what the program has got and is removed
	affected   []*definition
	defaults   map[string]*instance // of those that it builds: what Get returns, by name
	builds     map[*instance]*build
	took       map[*instance]time.Duration
}

// change waits for its turn, has plan say what is to be built, builds that and puts
// it in force.
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
	defer c.abandon() // what did not come into force, also if a build function leaves the goroutine
	if err := plan(c); err != nil {
		return err
	}
	return c.run()
}

// builds reports whether a reload or a first build runs on that goroutine.
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

// maxWait is how long a reload waits for one that does not end. A build function that
// waits for a reload on another goroutine would never return without it.
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
			<-r.slot // both were ready
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

// reload plans to build those names again.
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

// apply plans what the user asked for.
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

// carryOut builds what is to be built, and then, if nobody has built anything else
// meanwhile, puts it in force.
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
		done, err := r.commit(c.goroutine, c.candidates)
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

// errMissing is that other instances have come up that are to be built, too.
var errMissing = errors.New("registry: not everything is built")

// report reports what has come into force, and what the program has lost.
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

// missing returns the instances that are still to be built. The registry is locked.
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

// build builds each of them, to the last one even if some fail.
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

func (c *change) rebuild(i *instance) (err error) {
	err = errBuildLeft // stays if the build function leaves the goroutine
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

func (c *change) buildFunc(d *definition) BuildFunc {
	if f := c.define[d.name]; f != nil {
		return f
	}
	c.registry.mu.Lock()
	defer c.registry.mu.Unlock()
	return d.build
}

// candidates returns what is to come into force. The registry is locked.
func (c *change) candidates() (staged, error) {
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

// came notes which builds are not to be abandoned.
func (c *change) keepCommitted(done commitResult) {
	for _, b := range done.builds {
		delete(c.builds, b.instance)
	}
}

// failed reports that versions which were built did not come into force, for those
// that are to blame.
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

// abandon discards what did not come into force.
func (c *change) abandon() {
	defer c.dropEmptyDefinitions()
	for _, b := range c.builds {
		// Each is discarded, also if a function of the one before leaves the goroutine.
		defer func() { _ = c.registry.discard(c.ctx, b) }() // reported
	}
}

// undefine takes out the definitions that the change has made room for and that did
// not come to anything.
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
