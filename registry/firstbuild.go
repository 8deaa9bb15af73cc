package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/goroutine"
)

// A firstBuild is the first build of a pipeline. All other callers that want the pipeline wait for it.
type firstBuild struct {
	done    chan struct{} // closed when err is final
	err     error
	waiting *firstBuild // the first build whose pipeline this one embeds and waits for; nil: none
	outer   *firstBuild // the first build whose build function runs this one on the same goroutine; nil: none

	// A change that begins during the first build makes it outdated: it may have read the old configuration, so it runs
	// again. When that has happened maxOutdated times, the next change builds the pipeline itself.
	outdated    bool
	outdatedFor int
}

const maxOutdated = 2

var errBuildLeft = errors.New("registry: the build function left its goroutine")

// overtaken reports whether changes build the pipeline themselves.
func (f *firstBuild) overtaken() bool { return f != nil && f.outdatedFor >= maxOutdated }

// markOutdated makes the first builds of d that run outdated. The caller holds r.mu.
func (d *definition) markOutdated() {
	for _, i := range d.instances {
		if i.firstBuild != nil && !i.firstBuild.overtaken() {
			i.firstBuild.outdated = true
		}
	}
}

// getOrBuild returns the instance want. If it has not been built, getOrBuild builds it or waits for its first build.
// requester is the first build that needs the instance. If nil, it is the first build that runs on this goroutine, if
// any.
func (r *Registry) getOrBuild(want id, requester *firstBuild) (*instance, error) {
	goid := goroutine.ID()
	r.mu.Lock()
	if requester == nil {
		requester = r.firstBuilds[goid]
	}
	i, err := r.findOrAddInstance(want)
	if err != nil || i.current != nil {
		r.mu.Unlock()
		return i, err
	}
	first := i.firstBuild
	begins := first == nil
	if begins {
		first = &firstBuild{done: make(chan struct{}), err: errBuildLeft, outer: r.firstBuilds[goid]}
		i.firstBuild, r.firstBuilds[goid] = first, first
		r.closing.firstBuilds.Add(1)
	}
	err = requester.recordWait(first) // no error if this call begins the first build, which waits for no other yet
	r.mu.Unlock()
	if err != nil {
		return nil, fmt.Errorf("%w: %s", err, want)
	}
	defer r.stopWaiting(requester)
	if begins {
		r.runFirstBuild(i, first, goid)
		return i, first.err
	}
	select {
	case <-first.done:
		return i, first.err
	case <-r.closing.called:
		return nil, ErrClosed
	}
}

// recordWait records that f waits for other. It returns ErrCycle if other waits for f, directly or through others. The
// caller holds r.mu.
func (f *firstBuild) recordWait(other *firstBuild) error {
	if f == nil {
		return nil
	}
	for each := other; each != nil; each = each.waiting {
		if each == f {
			return ErrCycle
		}
	}
	f.waiting = other
	return nil
}

func (r *Registry) stopWaiting(f *firstBuild) {
	if f == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	f.waiting = nil
}

// runFirstBuild makes the first version of i. The error is in first.
func (r *Registry) runFirstBuild(i *instance, first *firstBuild, goid uint64) {
	defer func() {
		defer r.closing.firstBuilds.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		i.firstBuild = nil
		if r.firstBuilds[goid] = first.outer; first.outer == nil {
			delete(r.firstBuilds, goid)
		}
		if first.err != nil {
			r.forgetUnbuilt(i)
		}
		close(first.done)
	}()
	for r.tryFirstBuild(i, first, goid) {
	}
}

// tryFirstBuild builds once. again reports whether the build was outdated and must be repeated.
func (r *Registry) tryFirstBuild(i *instance, first *firstBuild, goid uint64) (again bool) {
	r.mu.Lock()
	f := i.definition.build
	first.outdated = false
	r.mu.Unlock()
	first.err = errBuildLeft // stays if the build function calls runtime.Goexit
	if f == nil {
		first.err = fmt.Errorf("%w: %q", ErrNotDefined, i.name)
		return false
	}
	v, err := r.build(i, f, nil, first)
	if err == nil {
		var done committed
		if done, err = r.commitFirst(v, first, goid); err == nil {
			first.err = nil
			r.afterCommit(context.Background(), done)
			return false
		}
	}
	if errors.Is(err, errSuperseded) {
		err = nil
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if again, first.err = r.outcomeOf(i, first, err); again {
		first.outdatedFor++
	}
	return again
}

// commitFirst puts the version that a first build has made in force, or else discards it.
func (r *Registry) commitFirst(v *version, first *firstBuild, goid uint64) (done committed, err error) {
	err = errBuildLeft // stays if a Reconfigure function calls runtime.Goexit
	defer func() {
		if err != nil {
			_ = r.discard(context.Background(), v) // reported
		}
	}()
	return r.commit(goid, func() (staged, error) {
		i := v.instance
		if again, err := r.outcomeOf(i, first, nil); again || err != nil || i.current != nil {
			return staged{}, errSuperseded
		}
		return staged{versions: []*version{v}}, nil
	})
}

// errSuperseded means that the first build is outdated, or is not needed any more.
var errSuperseded = errors.New("registry: superseded")

// outcomeOf returns what follows from a first build whose build function ended with err. If again is true, the build
// is outdated and is repeated. Otherwise the first build ends with the error that outcomeOf returns. If there is
// none, the version comes into force unless a change has built the instance in the meantime. The caller holds r.mu.
func (r *Registry) outcomeOf(i *instance, first *firstBuild, err error) (again bool, _ error) {
	switch {
	case r.closed:
		return false, errors.Join(ErrClosed, err)
	case i.definition.build == nil:
		return false, errors.Join(fmt.Errorf("%w: %q", ErrNotDefined, i.name), err)
	case i.removed:
		return false, errors.Join(fmt.Errorf("%w: %s", ErrRemoved, i.id), err)
	case i.current != nil: // a change has built it in the meantime
		return false, nil
	case first.outdated:
		return true, nil
	}
	return false, err
}

// forgetUnbuilt removes an instance whose first build has failed, so that such names do not fill the registry. The
// default instance stays, and so does one whose handle the program may have. The caller holds r.mu.
func (r *Registry) forgetUnbuilt(i *instance) {
	if i.current == nil && !i.wasInForce && i.definition.instances[i.instance] == i && !i.isDefault() {
		delete(i.definition.instances, i.instance)
		i.removed = true // a change can have built it meanwhile, and must not put it in force
	}
}
