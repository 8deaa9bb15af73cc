package registry

import (
	"fmt"
	"slices"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
)

// stagedBuilds are what is to come into force together, with the definitions and removals of their change.
type stagedBuilds struct {
	builds []*build
	define map[string]BuildFunc
	remove []string // sorted
}

// A commitResult is what is left to do after a commit without r.mu.
type commitResult struct {
	builds  []*build
	retired []*disposal
	removed []*instance // those whose handles the program has
}

// commit puts in force what prepare returns, all of it or nothing. It calls prepare with r.mu locked, perhaps more
// than once, and returns its error. goid is the number of the calling goroutine.
//
// A Reconfigure function can be the program's and take long, so it is called without r.mu. Meanwhile its limiter is
// busy: a commit that uses it waits, all others go on. Everything is checked again afterwards.
func (r *Registry) commit(goid uint64, prepare func() (stagedBuilds, error)) (commitResult, error) {
	for {
		done, t, err := r.tryCommit(goid, prepare)
		if t == nil {
			return done, err
		}
		if t.goroutine == goid {
			if done, err, again := t.commit(prepare); !again {
				return done, err
			}
			continue
		}
		if err := r.waitFor(t); err != nil {
			return commitResult{}, err
		}
	}
}

// tryCommit commits if no limiter has to be reconfigured. Otherwise it returns the reconfiguration to run or, if it
// is that of another goroutine, to wait for.
func (r *Registry) tryCommit(goid uint64, prepare func() (stagedBuilds, error)) (commitResult, *reconfiguration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := prepare()
	if err != nil {
		return commitResult{}, nil, err
	}
	for _, b := range c.builds {
		for _, u := range b.uses {
			switch t := u.busy; {
			case t == nil:
			case t.goroutine == goid && goid != 0:
				return commitResult{}, nil, fmt.Errorf("%w: a Reconfigure function wants %v", ErrReloading, u.id)
			default: // its result is not known yet
				return commitResult{}, t, nil
			}
		}
	}
	if err := r.check(c.builds, c.remove); err != nil {
		return commitResult{}, nil, err
	}
	if t := r.startReconfiguration(c.builds, goid); t != nil {
		return commitResult{}, t, nil
	}
	return r.putInForce(c), nil, nil
}

// putInForce puts in force what has been checked and whose limiters have their options. The caller holds r.mu.
func (r *Registry) putInForce(c stagedBuilds) commitResult {
	done := commitResult{builds: c.builds}
	r.setSharedLimits(c)
	for _, b := range c.builds {
		i := b.instance
		replaced := i.current
		i.current, i.wasInForce = b, true
		for _, u := range b.uses {
			if u.onCommit != nil {
				u.onCommit()
			}
		}
		old := weir.Must(i.handle.Put(b.prepared)) // prepared just now, and put only here
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
		done.removed = append(done.removed, d.handedOut()...)
		for _, i := range d.instances {
			done.retired = r.retire(done.retired, i, ErrRemoved)
		}
		r.removeDefinition(d)
	}
	r.drainOuterFirst(done.retired)
	return done
}

// check returns why the builds cannot be in force together with the others. Those in force have been checked, so a
// build is not compared with them if it shares no limiter and embeds no pipeline: there can be thousands of
// instances.
func (r *Registry) check(builds []*build, remove []string) error {
	sharing, containing := false, false
	for _, b := range builds {
		sharing = sharing || r.sharesResource(b)
		containing = containing || len(b.contains) > 0
	}
	if !sharing && !containing && len(remove) == 0 {
		return nil
	}
	inForce := r.inForceWith(builds, remove) // builds first
	if err := checkConflicts(inForce, len(builds)); err != nil {
		return err
	}
	if containing {
		if err := checkCycles(inForce); err != nil {
			return err
		}
		if err := checkContained(inForce, builds); err != nil {
			return err
		}
	}
	return r.checkRemoved(inForce, remove)
}

// sharesResource reports whether another version, staged, in force or draining, uses a limiter of a name that b uses.
// The caller holds r.mu.
func (r *Registry) sharesResource(b *build) bool {
	for key, u := range b.uses {
		if u.users > 1 || r.sameName[key] > 1 {
			return true
		}
	}
	return false
}

// setReady lets Get and GetInstance return the instance without r.mu.
func (r *Registry) setReady(i *instance) {
	r.ready.Store(i.id, i)
	if i.instance == i.definition.defaultInstance {
		r.ready.Store(i.name, i)
	}
}

func (r *Registry) setNotReady(i *instance) {
	r.ready.Delete(i.id)
	if i.instance == i.definition.defaultInstance {
		r.ready.Delete(i.name)
	}
}

// inForceWith returns the builds that would be in force: first those given, then the others without the pipelines of
// those names. The caller holds r.mu.
func (r *Registry) inForceWith(builds []*build, without []string) []*build {
	all := slices.Clone(builds)
	replaced := make(map[*instance]bool, len(builds))
	for _, b := range builds {
		replaced[b.instance] = true
	}
	for _, d := range r.definitions {
		if _, leaves := slices.BinarySearch(without, d.name); leaves {
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

// afterCommit does what is left to do after a commit. Panics of the program's functions are recovered: the caller
// would take the commit for one that failed.
func (r *Registry) afterCommit(c commitResult) {
	for _, d := range c.retired {
		go d.run()
	}
	for _, b := range c.builds {
		for _, u := range b.uses {
			r.observe(u.resource)
		}
	}
}

// observe calls ObserveLimiter once for each limiter.
func (r *Registry) observe(l *resource) {
	s, ok := l.value.(limiter.StatisticsProvider)
	if !ok || r.options.ObserveLimiter == nil {
		return
	}
	l.observation.begin(func() (stop func()) {
		recovered.Call("registry: ObserveLimiter", func() {
			stop = r.options.ObserveLimiter(strings.TrimSpace(l.id.space+" "+l.id.name), s)
		})
		return stop
	})
}
