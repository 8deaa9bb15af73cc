package registry

import (
	"fmt"
	"strings"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
)

// candidates are what is to come into force together.
type staged struct {
	builds []*build
	define map[string]BuildFunc
	remove []string
}

// A committed is what is left to do, without the registry's lock, when versions
// have come into force.
type commitResult struct {
	builds  []*build
	retired []*disposal
	lost    []*instance // that were removed although the program has got them
}

// commit puts in force what prepare returns, all of it or nothing. prepare is called
// with the registry locked, maybe more than once; commit returns its error. here is
// the goroutine.
//
// A Reconfigure function may be the program's, and take long, so it runs without the
// registry's lock. Meanwhile the limiter is busy: a commit that concerns it waits, and
// all others go on. Afterwards everything is checked again.
func (r *Registry) commit(here uint64, prepare func() (staged, error)) (commitResult, error) {
	for {
		done, t, err := r.tryCommit(here, prepare)
		if t == nil {
			return done, err
		}
		if t.goroutine == here {
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

// tryCommit commits if no limiter has to be reconfigured. Otherwise it returns the
// reconfiguring that is to be run, or, if that is another goroutine's, waited for.
func (r *Registry) tryCommit(here uint64, prepare func() (staged, error)) (commitResult, *reconfiguration, error) {
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
			case t.goroutine == here && here != 0:
				return commitResult{}, nil, fmt.Errorf("%w: a Reconfigure function wants %v", ErrReloading, u.id)
			default: // what it comes to is not known yet
				return commitResult{}, t, nil
			}
		}
	}
	if err := r.check(c.builds, setOf(c.remove)); err != nil {
		return commitResult{}, nil, err
	}
	if t := r.startReconfiguration(c.builds, here); t != nil {
		return commitResult{}, t, nil
	}
	return r.putInForce(c), nil, nil
}

// putInForce puts in force what was checked, and whose limiters have their options.
// The registry is locked.
func (r *Registry) putInForce(c staged) commitResult {
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
		done.lost = append(done.lost, d.handedOut()...)
		for _, i := range d.instances {
			done.retired = r.retire(done.retired, i, ErrRemoved)
		}
		r.removeDefinition(d)
	}
	r.drainOuterFirst(done.retired)
	return done
}

// check returns why the builds cannot be in force with what else would be. What is in
// force has been checked: one of thousands of instances need not be compared with
// the others if it has nothing that could be at odds with them.
func (r *Registry) check(builds []*build, remove map[string]bool) error {
	sharing, containing := false, false
	for _, b := range builds {
		sharing = sharing || r.sharesResource(b)
		containing = containing || len(b.contains) > 0
	}
	if !sharing && !containing && len(remove) == 0 {
		return nil
	}
	inForce := r.inForceWith(builds, remove) // those first
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

// shares reports whether any other version, staged, in force or draining, has a limiter
// of a name that this one has. The registry is locked.
func (r *Registry) sharesResource(b *build) bool {
	for key, u := range b.uses {
		if u.users > 1 || r.sameName[key] > 1 {
			return true
		}
	}
	return false
}

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

// inForceWith returns the builds that would be in force: those, and then the others
// but for the pipelines of those names.
func (r *Registry) inForceWith(builds []*build, without map[string]bool) []*build {
	all := append([]*build(nil), builds...)
	replaced := make(map[*instance]bool, len(builds))
	for _, b := range builds {
		replaced[b.instance] = true
	}
	for _, d := range r.definitions {
		if without[d.name] {
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

// settle does what is to be done after a commit. A panic of the program's functions does not reach the
// caller, who would take the commit for one that failed.
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
