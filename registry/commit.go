package registry

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// staged are the versions, definitions and removals that one commit puts in force.
type staged struct {
	versions []*version
	define   map[string]BuildFunc
	remove   []string // sorted
}

// committed is what a commit leaves for the time after r.mu has been unlocked.
type committed struct {
	versions []*version
	retired  []*disposal
	removed  []*instance // the removed instances whose handles the program has
}

// commit puts in force what prepare returns, all of it or nothing. It calls prepare with r.mu locked, perhaps more
// than once, and returns its error. goid is the number of the calling goroutine.
//
// A Reconfigure function can be the program's and take long, so it is called without r.mu. Meanwhile its limiter is
// busy: a commit that uses it waits, all others go on. Everything is checked again afterwards.
func (r *Registry) commit(goid uint64, prepare func() (staged, error)) (committed, error) {
	for {
		done, own, other, err := r.tryCommit(goid, prepare)
		switch {
		case own != nil:
			if done, again, err := own.run(prepare); !again {
				return done, err
			}
		case other != nil:
			if err := r.waitFor(context.Background(), other); err != nil {
				return committed{}, err
			}
		default:
			return done, err
		}
	}
}

// tryCommit commits if no limiter has to be reconfigured. Otherwise it returns the reconfiguration to run, or that of
// another goroutine to wait for.
func (r *Registry) tryCommit(goid uint64, prepare func() (staged, error)) (done committed, own, other *reconfiguration, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := prepare()
	if err != nil {
		return committed{}, nil, nil, err
	}
	for _, v := range c.versions {
		for _, u := range v.uses {
			switch {
			case u.busy == nil:
			case u.busy.goroutine == goid && goid != 0:
				return committed{}, nil, nil, fmt.Errorf("%w: a Reconfigure function would wait for itself, because it uses %v", ErrReloading, u.id)
			default: // whether the limiter keeps its options is not known yet
				return committed{}, nil, u.busy, nil
			}
		}
	}
	if err := r.check(c); err != nil {
		return committed{}, nil, nil, err
	}
	if own := r.startReconfiguration(c.versions, goid); own != nil {
		return committed{}, own, nil, nil
	}
	return r.putInForce(c), nil, nil, nil
}

// putInForce puts c in force. c has been checked, and its limiters have their options. The caller holds r.mu.
func (r *Registry) putInForce(c staged) committed {
	done := committed{versions: c.versions}
	r.setSharedLimits(c)
	// Handles change one after the other while executions run. A new pipeline comes before the pipelines that have a version in
	// force: otherwise an execution that begins between the two on a new version would find no version of a pipeline
	// that it uses.
	slices.SortStableFunc(c.versions, func(a, b *version) int {
		return cmp.Compare(a.instance.versionsInForce(), b.instance.versionsInForce())
	})
	now := time.Now()
	for _, v := range c.versions {
		i := v.instance
		replaced := i.current
		i.current, i.wasInForce = v, true
		i.recordVersion(now, replaced != nil)
		for _, u := range v.uses {
			if u.onCommit != nil {
				u.onCommit()
			}
		}
		old := i.handle.Put(v.prepared)
		if replaced != nil {
			done.retired = append(done.retired, r.disposal(replaced, old))
		}
		r.setReady(i)
	}
	for name, f := range c.define {
		d := r.definitions[name]
		d.build = f
		d.markOutdated()
	}
	for _, name := range c.remove {
		d := r.definitions[name]
		done.removed = append(done.removed, d.instancesHandedOut()...)
		for _, i := range d.instances {
			done.retired = r.retire(done.retired, i, ErrRemoved)
		}
		r.removeDefinition(d)
	}
	r.drainOuterFirst(done.retired)
	return done
}

// versionsInForce returns 0 if no version of the instance is in force, and otherwise 1.
func (i *instance) versionsInForce() int {
	if i.current == nil {
		return 0
	}
	return 1
}

// check returns an error if c cannot be in force together with the other versions. The versions in force have been
// checked before, so if no version of c shares a limiter or embeds a pipeline, and nothing is removed, nothing is
// compared: there can be thousands of instances. The caller holds r.mu.
func (r *Registry) check(c staged) error {
	sharing, containing := false, false
	for _, v := range c.versions {
		sharing = sharing || r.sharesResource(v)
		containing = containing || len(v.contains) > 0
	}
	if !sharing && !containing && len(c.remove) == 0 {
		return nil
	}
	inForce := r.inForceWith(c)
	if err := checkConflicts(inForce, len(c.versions)); err != nil {
		return err
	}
	if containing {
		h := indexByHandle(inForce)
		if err := checkCycles(inForce, h); err != nil {
			return err
		}
		if err := checkContained(c.versions, h); err != nil {
			return err
		}
	}
	return r.checkRemoved(inForce, c.remove)
}

// sharesResource reports whether another version, staged, in force or draining, uses a resource of a name that v uses.
// The caller holds r.mu.
func (r *Registry) sharesResource(v *version) bool {
	for key, u := range v.uses {
		if u.users > 1 || r.sameName[key] > 1 {
			return true
		}
	}
	return false
}

// setReady lets Get and GetInstance return the instance without r.mu.
func (r *Registry) setReady(i *instance) {
	r.ready.Store(i.id, i)
	if i.isDefault() {
		r.ready.Store(i.name, i)
	}
}

func (r *Registry) setNotReady(i *instance) {
	r.ready.Delete(i.id)
	if i.isDefault() {
		r.ready.Delete(i.name)
	}
}

// inForceWith returns the versions that would be in force with c: first those of c, then the others. The caller holds
// r.mu.
func (r *Registry) inForceWith(c staged) []*version {
	all := slices.Clone(c.versions)
	replaced := make(map[*instance]bool, len(c.versions))
	for _, v := range c.versions {
		replaced[v.instance] = true
	}
	for _, d := range r.definitions {
		if _, removed := slices.BinarySearch(c.remove, d.name); removed {
			continue
		}
		for _, i := range d.instances {
			if i.current != nil && !replaced[i] {
				all = append(all, i.current)
			}
		}
	}
	return all
}

// afterCommit starts the disposals and the observation of new limiters, tells the Listener which versions are in force,
// and ends overrides of limiters that are not in force any more. It recovers panics of the program's functions: the commit
// has succeeded, and a panic in Apply would make its caller believe that it has failed.
func (r *Registry) afterCommit(ctx context.Context, c committed) {
	defer r.endUnusedOverrides(ctx)
	for _, d := range c.retired {
		go d.run()
	}
	for _, v := range c.versions {
		for _, u := range v.uses {
			r.observe(u.resource)
		}
		if r.hooks.InForce != nil {
			recovered.Call("registry: Hooks.InForce", func() { r.hooks.InForce(v.instance.handle.Pipeline()) })
		}
	}
}
