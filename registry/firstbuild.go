package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/internal/goroutine"
	"github.com/weir-go/weir/pipeline"
)

// A firstBuild is the first build of a pipeline. All other callers that want the pipeline wait for it.
type firstBuild struct {
	done    chan struct{}
	err     error
	waiting *firstBuild // the one that this one waits for, because it embeds that pipeline
	outer   *firstBuild // the one whose build function has begun this one on the same goroutine; nil: none

	// A change that begins during the first build makes it outdated: it may have read the old configuration, so it
	// runs again. When that has happened maxOutdated times, changes no longer wait for it: they build the pipeline
	// themselves, and it is ready with the next change.
	outdated    bool
	outdatedFor int
}

const maxOutdated = 2

var errBuildLeft = errors.New("registry: the build function left its goroutine")

// overtaken reports whether changes build the pipeline themselves.
func (a *firstBuild) overtaken() bool { return a != nil && a.outdatedFor >= maxOutdated }

// markOutdated makes the first builds of d that run outdated. The caller holds r.mu.
func (d *definition) markOutdated() {
	for _, i := range d.instances {
		if i.firstBuild != nil && !i.firstBuild.overtaken() {
			i.firstBuild.outdated = true
		}
	}
}

// firstBuild returns the instance want. If it has not been built, firstBuild builds it or waits for its first build.
// by is the first build that asks for it; nil if that is not known: then it is the first build that runs on this
// goroutine, if there is one.
func (r *Registry) firstBuild(want id, by *firstBuild) (*instance, error) {
	here := goroutine.ID()
	r.mu.Lock()
	if by == nil {
		by = r.firstBuilds[here]
	}
	i, err := r.instance(want)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if i.current != nil {
		r.mu.Unlock()
		return i, nil
	}
	if a := i.firstBuild; a != nil {
		err := by.wait(a)
		r.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, want)
		}
		defer r.stopWaiting(by)
		select {
		case <-a.done:
			return i, a.err
		case <-r.closeCalled:
			return nil, ErrClosed
		}
	}
	a := &firstBuild{done: make(chan struct{}), err: errBuildLeft}
	i.firstBuild = a
	_ = by.wait(a) // no error: nothing waits for a yet
	a.outer, r.firstBuilds[here] = r.firstBuilds[here], a
	r.firstBuildsRunning.Add(1)
	r.mu.Unlock()

	defer r.stopWaiting(by)
	r.runFirstBuild(i, a, here)
	return i, a.err
}

// wait records that a waits for first. It returns ErrCycle if first waits for a, directly or through others. The
// caller holds r.mu.
func (a *firstBuild) wait(first *firstBuild) error {
	if a == nil {
		return nil
	}
	for other := first; other != nil; other = other.waiting {
		if other == a {
			return ErrCycle
		}
	}
	a.waiting = first
	return nil
}

func (r *Registry) stopWaiting(by *firstBuild) {
	if by == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	by.waiting = nil
}

// instance returns the instance want, and adds it to its definition if it is new. The caller holds r.mu.
func (r *Registry) instance(want id) (*instance, error) {
	d, err := r.defined(want.name)
	if err != nil {
		return nil, err
	}
	if i := d.instances[want.instance]; i != nil {
		return i, nil
	}
	if err := checkLength("instance", want.instance); err != nil {
		return nil, err
	}
	others := len(d.instances)
	if _, there := d.instances[d.defaultInstance]; there {
		others--
	}
	if most := r.options.MaxInstances; want.instance != d.defaultInstance && most > 0 && others >= most {
		return nil, fmt.Errorf("%w: %q has %d", ErrTooManyInstances, want.name, others)
	}
	return d.add(want.instance), nil
}

// add adds an instance without a version.
func (d *definition) add(name string) *instance {
	i := &instance{
		id:         id{d.name, name},
		definition: d,
		handle:     pipeline.NewReloadable(d.name, name),
	}
	d.instances[name] = i
	return i
}

// runFirstBuild makes the first version of i. The error is in a.
func (r *Registry) runFirstBuild(i *instance, a *firstBuild, here uint64) {
	defer func() {
		defer r.firstBuildsRunning.Done()
		r.mu.Lock()
		defer r.mu.Unlock()
		i.firstBuild = nil
		if r.firstBuilds[here] = a.outer; a.outer == nil {
			delete(r.firstBuilds, here)
		}
		if a.err != nil {
			r.forgetUnbuilt(i)
		}
		close(a.done)
	}()
	for r.tryFirstBuild(i, a, here) {
	}
}

// tryFirstBuild builds once. It returns true if the build is outdated.
func (r *Registry) tryFirstBuild(i *instance, a *firstBuild, here uint64) (again bool) {
	r.mu.Lock()
	f := i.definition.build
	a.outdated = false
	r.mu.Unlock()
	a.err = errBuildLeft // stays if the build function calls runtime.Goexit
	if f == nil {
		a.err = fmt.Errorf("%w: %q", ErrNotDefined, i.name)
		return false
	}
	conclude := func(err error) {
		r.mu.Lock()
		defer r.mu.Unlock()
		if again, a.err = r.superseded(i, a, err); again {
			a.outdatedFor++
		}
	}
	b, err := r.build(i, f, nil, a)
	if err != nil {
		conclude(err)
		return again
	}
	put := false
	defer func() { // also if a Reconfigure calls runtime.Goexit
		if !put {
			_ = r.discard(context.Background(), b) // reported
		}
	}()
	c, err := r.commit(here, func() (staged, error) {
		if again, err := r.superseded(i, a, nil); again || err != nil || i.current != nil {
			return staged{}, errSuperseded
		}
		return staged{builds: []*build{b}}, nil
	})
	switch {
	case err == nil:
		put, a.err = true, nil
		r.afterCommit(c)
	case errors.Is(err, errSuperseded):
		conclude(nil)
	default:
		conclude(err)
	}
	return again
}

// errSuperseded means that the first build is outdated, or is not needed any more.
var errSuperseded = errors.New("registry: superseded")

// superseded decides what happens instead of putting a first build in force that ended with err: it is built again,
// or the error that superseded returns is its result. Without either, the build comes into force. The caller holds
// r.mu.
func (r *Registry) superseded(i *instance, a *firstBuild, err error) (again bool, _ error) {
	switch {
	case r.closed:
		return false, errors.Join(ErrClosed, err)
	case i.definition.build == nil:
		return false, errors.Join(fmt.Errorf("%w: %q", ErrNotDefined, i.name), err)
	case i.removed:
		return false, errors.Join(fmt.Errorf("%w: %s", ErrRemoved, i.id), err)
	case i.current != nil: // a change has built it in the meantime
		return false, nil
	case a.outdated:
		return true, nil
	}
	return false, err
}

// forgetUnbuilt removes an instance whose first build has failed, so that such names do not fill the registry. It
// stays if the program may have its handle. The caller holds r.mu.
func (r *Registry) forgetUnbuilt(i *instance) {
	if i.current == nil && !i.wasInForce && i.definition.instances[i.instance] == i && i.instance != i.definition.defaultInstance {
		delete(i.definition.instances, i.instance)
	}
}
