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

// A Change is what [Registry.Apply] does: as a whole, or not at all.
type Change struct {
	// Define has the build functions of pipelines that are new or that are to be
	// built anew, by another function or the same one.
	Define map[string]BuildFunc
	// Remove names pipelines that are to be there no more. Executions on their
	// handles return [ErrRemoved]. Defining the name again revives the handle of
	// [Registry.Get]; other instances are gone for good. A pipeline that another one
	// contains cannot be removed without that.
	Remove []string
}

// Reload builds the named pipelines anew, all instances of each, or with no name
// all that have been built, and puts the new versions in force, all of them or
// none. Those that have not been built yet are left alone.
//
// If it fails everything stays as it was, and later reloads are none the worse for
// it. Each pipeline that could not be built, or whose build is at odds with another
// pipeline, is reported as [EventReloadFailed]. The error has all that went wrong;
// it is [ErrNotDefined] for an unknown name.
//
// Reload returns when the new versions serve; the old ones are drained and
// disposed of behind it. One reload runs at a time, others wait or leave with the
// context; one that a build function or a Listener of another one begins is an
// [ErrReloading]. A context that ends between two builds ends the reload.
func (r *Registry) Reload(ctx context.Context, names ...string) error {
	return r.change(ctx, func(c *change) error { return c.reload(names) })
}

// Apply defines, defines anew and removes pipelines, all in one: every pipeline
// that is defined is built, with all its instances, before anything changes, and
// if one fails nothing does. It is [Registry.Reload] in all other respects.
func (r *Registry) Apply(ctx context.Context, c Change) error {
	for _, name := range slices.Sorted(maps.Keys(c.Define)) {
		if err := checkDefinition(name, c.Define[name]); err != nil {
			return err
		}
		if slices.Contains(c.Remove, name) {
			return fmt.Errorf("registry: %q is both defined and removed", name)
		}
	}
	return r.change(ctx, func(made *change) error { return made.apply(c) })
}

// A change builds pipelines and puts them in force together.
type change struct {
	registry *Registry
	ctx      context.Context //nolint:containedctx // of the one call that it is part of
	define   map[string]BuildFunc
	remove   []string
	affected []*definition
	usual    map[string]*instance // of those that it builds: what Get returns, by name
	builds   map[*instance]*build
	took     map[*instance]time.Duration
}

// change waits for its turn, has plan say what is to be built, builds that and puts
// it in force.
func (r *Registry) change(ctx context.Context, plan func(*change) error) error {
	here := goroutine()
	if here != 0 && r.changing.Load() == here {
		return ErrReloading
	}
	select {
	case r.slot <- struct{}{}:
		defer func() { <-r.slot }()
		r.changing.Store(here)
		defer r.changing.Store(0)
	case <-ctx.Done():
	}
	if ctx.Err() != nil { // also where both were ready
		return fmt.Errorf("registry: before reloading: %w", pipeline.ContextError(ctx))
	}
	c := &change{
		registry: r,
		ctx:      ctx,
		usual:    make(map[string]*instance),
		builds:   make(map[*instance]*build),
		took:     make(map[*instance]time.Duration),
	}
	defer c.abandon() // what did not come into force, also if a build function leaves the goroutine
	if err := plan(c); err != nil {
		return err
	}
	return c.carryOut()
}

// reload plans to build those names anew.
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
	for _, name := range names {
		d, err := r.defined(name)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if !slices.Contains(c.affected, d) {
			c.affected = append(c.affected, d)
			d.turn++ // first builds that have begun are out of date
		}
	}
	return errors.Join(errs...)
}

// apply plans what the user asked for.
func (c *change) apply(want Change) error {
	r := c.registry
	usual := make(map[string]string, len(want.Define))
	for name := range want.Define {
		usual[name] = r.usualInstance(name)
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
		if d.instances[d.usual] == nil {
			d.add(d.usual)
		}
		c.usual[name] = d.instances[d.usual]
		c.affected = append(c.affected, d)
	}
	return nil
}

// carryOut builds what is to be built, and then, if nobody has built anything else
// meanwhile, puts it in force.
func (c *change) carryOut() error {
	r := c.registry
	for {
		r.mu.Lock()
		if r.closed {
			r.mu.Unlock()
			return ErrClosed
		}
		missing := c.missing()
		if len(missing) == 0 {
			done, err := c.commit()
			r.mu.Unlock()
			if err != nil {
				return c.failed(err)
			}
			r.settle(done)
			for _, b := range done.builds {
				r.reportReload(c.ctx, b.instance.id, c.took[b.instance])
			}
			return nil
		}
		r.mu.Unlock()
		if err := c.build(missing); err != nil {
			return err
		}
	}
}

// missing returns the instances that are still to be built. The registry is locked.
func (c *change) missing() []*instance {
	var missing []*instance
	for _, d := range c.affected {
		for _, i := range d.instances {
			_, asked := c.define[d.name]
			if (i.current != nil || asked && i == c.usual[d.name]) && c.builds[i] == nil {
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
	err = errLeft // stays if the build function leaves the goroutine
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

// commit puts it in force. The registry is locked, and no build is missing.
func (c *change) commit() (committed, error) {
	var builds []*build
	for i, b := range c.builds {
		if !i.removed {
			builds = append(builds, b)
		}
	}
	slices.SortFunc(builds, func(a, b *build) int { return compare(a.instance.id, b.instance.id) })
	done, err := c.registry.commit(builds, c.remove...)
	if err != nil {
		return committed{}, err
	}
	for name, f := range c.define {
		d := c.registry.definitions[name]
		d.build = f
		d.turn++
	}
	for _, b := range builds {
		delete(c.builds, b.instance) // they are not to be abandoned
	}
	return done, nil
}

// failed reports that versions which were built did not come into force, for those
// that are to blame.
func (c *change) failed(err error) error {
	instances := slices.SortedFunc(maps.Keys(c.builds), func(a, b *instance) int { return compare(a.id, b.id) })
	fault, known := errors.AsType[*faultError](err)
	for _, i := range instances {
		if known && !slices.Contains(fault.of, i.id) {
			continue
		}
		c.registry.reportFailure(c.ctx, i.id, EventReloadFailed, err)
	}
	return err
}

// abandon discards what did not come into force.
func (c *change) abandon() {
	r := c.registry
	for _, b := range c.builds {
		_ = r.discard(c.ctx, b) // reported
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for name := range c.define {
		if d := r.definitions[name]; d.build == nil && !d.everBuilt() {
			delete(r.definitions, name)
		}
	}
}

// everBuilt tells whether there are handles of it that somebody may have.
func (d *definition) everBuilt() bool {
	for _, i := range d.instances {
		if i.handed {
			return true
		}
	}
	return false
}
