package registry

import (
	"slices"

	"github.com/weir-go/weir/limiter"
)

// A committed is what is left to do, without the registry's lock, when versions
// have come into force.
type committed struct {
	builds  []*build
	retired []*disposal
}

// commit puts the builds in force and takes those names out, all of it or nothing.
// The registry is locked.
func (r *Registry) commit(builds []*build, remove ...string) (committed, error) {
	if err := r.check(builds, remove); err != nil {
		return committed{}, err
	}
	if err := reconfigure(builds); err != nil {
		return committed{}, err
	}
	c := committed{builds: builds}
	for _, b := range builds {
		i := b.instance
		replaced := i.current
		i.current, i.handed = b, true
		for _, u := range b.uses {
			if u.begin != nil {
				u.begin()
			}
		}
		old := i.handle.Put(b.prepared)
		if replaced != nil {
			c.retired = append(c.retired, r.disposal(replaced, old))
		}
		r.setReady(i)
	}
	for _, name := range remove {
		d := r.definitions[name]
		d.build = nil
		d.turn++
		for _, i := range d.instances {
			c.retired = r.takeOut(c.retired, i, ErrRemoved)
			if i.instance != d.usual {
				i.removed = true
				delete(d.instances, i.instance)
			}
		}
	}
	r.drainOuterFirst(c.retired)
	return c, nil
}

// check tells whether the builds can be in force with what else would be. What is in
// force has been checked: one of thousands of instances need not be compared with
// the others if it has nothing that could be at odds with them.
func (r *Registry) check(builds []*build, remove []string) error {
	sharing, containing := false, false
	for _, b := range builds {
		sharing = sharing || r.shares(b)
		containing = containing || len(b.contains) > 0
	}
	if !sharing && !containing && len(remove) == 0 {
		return nil
	}
	inForce := r.inForceWith(builds, remove) // those first
	if err := agree(inForce, len(builds)); err != nil {
		return err
	}
	if containing {
		if err := checkCycles(inForce); err != nil {
			return err
		}
	}
	return r.checkRemoved(inForce, remove)
}

// shares tells whether any other version, staged, in force or draining, has a limiter
// of a name that this one has. The registry is locked.
func (r *Registry) shares(b *build) bool {
	for name, u := range b.uses {
		if u.users > 1 || r.namesakes[name] > 1 {
			return true
		}
	}
	return false
}

func (r *Registry) setReady(i *instance) {
	r.ready.Store(i.id, i.handle.Pipeline())
	if i.instance == i.definition.usual {
		r.ready.Store(i.name, i.handle.Pipeline())
	}
}

func (r *Registry) setNotReady(i *instance) {
	r.ready.Delete(i.id)
	if i.instance == i.definition.usual {
		r.ready.Delete(i.name)
	}
}

// inForceWith returns the builds that would be in force: those, and then the others
// but for the pipelines of those names.
func (r *Registry) inForceWith(builds []*build, without []string) []*build {
	all := append([]*build(nil), builds...)
	replaced := make(map[*instance]bool, len(builds))
	for _, b := range builds {
		replaced[b.instance] = true
	}
	for _, d := range r.definitions {
		if slices.Contains(without, d.name) {
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

// settle does what is to be done after a commit.
func (r *Registry) settle(c committed) {
	for _, d := range c.retired {
		go d.run()
	}
	for _, b := range c.builds {
		for _, u := range b.uses {
			r.observe(u.ownedLimiter)
		}
	}
}

func (r *Registry) observe(l *ownedLimiter) {
	s, ok := l.limiter.(limiter.StatisticsProvider)
	if !ok || r.options.ObserveLimiter == nil {
		return
	}
	l.observed.begin(func() func() { return r.options.ObserveLimiter(l.id.name, s) })
}
