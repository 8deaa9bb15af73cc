package registry

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
)

// staged are the versions, definitions and removals that one swap puts in force.
type staged struct {
	Change // Remove is sorted

	versions []*version // a pipeline after the pipelines that it contains
}

// swapped is what a swap leaves for the time after r.mu has been unlocked.
type swapped struct {
	versions []*version
	retired  []*disposal
	removed  []*instance // the removed instances whose handles the program has

	unobserved []*resource
}

// A stager returns what a swap is to put in force. If it is not ready, ok is false. It is called with r.mu locked, perhaps more
// than once.
type stager func() (s staged, ok bool, err error)

// swap puts in force what stage returns, all of it or nothing.
//
// A Reconfigure function can be the program's and take long, so limiters get their options without r.mu. Meanwhile swaps that
// change no limiter go on, and everything is checked again afterwards.
func (r *Registry) swap(ctx context.Context, stage stager) (swapped, error) {
	done, changes, err := r.trySwap(stage, nil)
	if len(changes) == 0 {
		return done, err
	}
	if err := r.take(ctx, r.reconfiguring); err != nil {
		return swapped{}, err
	}
	defer func() { <-r.reconfiguring }()
	if done, changes, err = r.trySwap(stage, nil); len(changes) == 0 {
		return done, err // another one has changed them
	}
	begun := 0
	for err == nil && begun < len(changes) {
		c := changes[begun]
		begun++
		if err = c.reconfigureFrom(c.resource.options, c.options); err != nil {
			err = &faultError{fmt.Errorf("registry: %v: %w", c.id, err), []id{c.by}}
		}
	}
	if err == nil {
		done, _, err = r.trySwap(stage, changes)
	}
	if done.versions == nil {
		for _, c := range slices.Backward(changes[:begun]) { // also the one that refused: it may have changed some of its partitions
			_ = c.reconfigureFrom(c.options, c.resource.options) // cannot fail: the options were in force
		}
	}
	return done, err
}

// An optionsChange gives a limiter the options of a use in place of those of its resource.
type optionsChange struct {
	*resourceUse

	by id // the pipeline that uses it
}

// trySwap puts in force what stage returns. If limiters have to change before, and have not changed already, it
// returns these changes instead.
func (r *Registry) trySwap(stage stager, changed []optionsChange) (swapped, []optionsChange, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	s, ok, err := stage()
	if err == nil && ok {
		err = r.check(s)
	}
	if err != nil || !ok {
		return swapped{}, nil, err
	}
	if changed == nil {
		if changes := changesFor(s.versions); len(changes) > 0 {
			return swapped{}, changes, nil
		}
	}
	for _, c := range changed {
		c.resource.options = c.options
	}
	return r.putInForce(s), nil, nil
}

// changesFor returns the changes of limiters that the versions want. Limiters in a store come last: other instances see new
// limits at once, and must not see limits that are then undone. The caller holds r.mu.
func changesFor(versions []*version) []optionsChange {
	var here, inStore []optionsChange
	seen := make(map[*resource]bool) // several versions can use it, with the same options
	for _, v := range versions {
		for _, u := range v.uses {
			if u.resource.options == u.options || seen[u.resource] {
				continue
			}
			if len(versions) > 1 {
				seen[u.resource] = true
			}
			if u.inStore != nil {
				inStore = append(inStore, optionsChange{u, v.instance.id})
			} else {
				here = append(here, optionsChange{u, v.instance.id})
			}
		}
	}
	return append(here, inStore...)
}

// putInForce puts s in force. s has been checked, and its limiters have their options. The caller holds r.mu.
func (r *Registry) putInForce(s staged) swapped {
	done := swapped{versions: s.versions}
	r.setSharedLimits(s)
	now := time.Now()
	// Handles change one after the other while executions run, that of a pipeline after those of the pipelines that it
	// contains: an execution that begins between the two finds a version of each pipeline that it uses.
	for _, v := range s.versions {
		i := v.instance
		old := i.handle.Put(v.prepared)
		if i.current != nil {
			i.info.LastReload, i.info.Err = now, nil
			done.retired = append(done.retired, r.disposal(i.current, old))
		}
		i.current, v.swapped, i.info.Built = v, true, now
		i.info.Version++
		for key, u := range v.uses {
			u.inForce++
			r.inForce[key] = u.resource
			if _, ok := u.value.(limiter.StatisticsProvider); ok && !u.observed && r.options.ObserveLimiter != nil {
				u.observed = true
				u.users++ // until observe has returned
				done.unobserved = append(done.unobserved, u.resource)
			}
			if u.onSwap != nil {
				u.onSwap()
			}
		}
		r.ready.Store(i.id, i)
		if i.isDefault() {
			r.ready.Store(i.name, i)
		}
	}
	for name, f := range s.Define {
		r.definitions[name].build = f
	}
	for _, name := range s.Remove {
		d := r.definitions[name]
		done.removed = append(done.removed, d.instancesHandedOut()...)
		for _, i := range d.instances {
			r.retire(&done, i, ErrRemoved)
		}
		r.removeDefinition(d)
	}
	r.drainOuterFirst(done.retired)
	return done
}

// retire leaves the handle of an instance without a version. The caller holds r.mu.
func (r *Registry) retire(done *swapped, i *instance, why error) {
	r.ready.Delete(i.id)
	if i.isDefault() {
		r.ready.Delete(i.name)
	}
	old := i.handle.Retire(why)
	if i.current != nil {
		done.retired = append(done.retired, r.disposal(i.current, old))
		i.current = nil
	}
}

// afterSwap starts the disposals, has new limiters observed, and tells the Listener which versions are in force.
func (r *Registry) afterSwap(done swapped) {
	for _, d := range done.retired {
		go r.dispose(d)
	}
	for _, res := range done.unobserved {
		recovered.Hook("registry: ObserveLimiter", func() {
			res.unobserve = r.options.ObserveLimiter(strings.TrimSpace(res.id.space+" "+res.id.name), res.value.(limiter.StatisticsProvider))
		})
		_ = r.release(res) // if nothing else uses it by now
	}
	for _, v := range done.versions {
		if r.hooks.InForce != nil {
			recovered.Hook("registry: Hooks.InForce", func() { r.hooks.InForce(v.instance.handle.Pipeline()) })
		}
	}
}
