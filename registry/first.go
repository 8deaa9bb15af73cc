package registry

import (
	"context"
	"errors"
	"fmt"

	"github.com/weir-go/weir/pipeline"
)

// An attempt is the first build of a pipeline, which whoever else wants it waits
// for.
type attempt struct {
	done    chan struct{}
	err     error
	waiting *attempt // what this one waits for: a pipeline that it embeds
	around  *attempt // the one whose build function runs on the same goroutine; nil: none
}

var errLeft = errors.New("registry: the build function left its goroutine")

// buildFirst returns the handle of a pipeline that has not been built, or had not
// a moment ago. by is the first build that wants it, nil if that is not known: then
// it is the one whose build function runs on this goroutine, if one does.
func (r *Registry) buildFirst(want id, by *attempt) (*pipeline.Pipeline, error) {
	here := goroutine()
	r.mu.Lock()
	if by == nil {
		by = r.builders[here]
	}
	i, err := r.instance(want)
	if err != nil {
		r.mu.Unlock()
		return nil, err
	}
	if i.current != nil {
		r.mu.Unlock()
		return i.handle.Pipeline(), nil
	}
	if a := i.attempt; a != nil {
		err := by.wait(a)
		r.mu.Unlock()
		if err != nil {
			return nil, fmt.Errorf("%w: %s", err, want)
		}
		<-a.done
		r.stopWaiting(by)
		return i.built(a)
	}
	a := &attempt{done: make(chan struct{}), err: errLeft}
	i.attempt = a
	_ = by.wait(a) // nobody can be waiting for it yet
	a.around, r.builders[here] = r.builders[here], a
	r.mu.Unlock()

	r.buildInstance(i, a, here)
	r.stopWaiting(by)
	return i.built(a)
}

func (i *instance) built(a *attempt) (*pipeline.Pipeline, error) {
	if a.err != nil {
		return nil, a.err
	}
	return i.handle.Pipeline(), nil
}

// wait notes that by waits for a, or says that a is waiting for by already. The
// registry is locked.
func (by *attempt) wait(a *attempt) error {
	if by == nil {
		return nil
	}
	for other := a; other != nil; other = other.waiting {
		if other == by {
			return ErrCycle
		}
	}
	by.waiting = a
	return nil
}

func (r *Registry) stopWaiting(by *attempt) {
	if by == nil {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	by.waiting = nil
}

// instance returns the instance of that id, made if need be. The registry is locked.
func (r *Registry) instance(want id) (*instance, error) {
	d, err := r.defined(want.name)
	if err != nil {
		return nil, err
	}
	if i := d.instances[want.instance]; i != nil {
		return i, nil
	}
	others := len(d.instances)
	if _, there := d.instances[d.usual]; there {
		others--
	}
	if most := r.options.MaxInstances; want.instance != d.usual && most > 0 && others >= most {
		return nil, fmt.Errorf("%w: %q has %d", ErrTooManyInstances, want.name, others)
	}
	return d.add(want.instance), nil
}

func (d *definition) add(name string) *instance {
	i := &instance{
		id:         id{d.name, name},
		definition: d,
		handle:     pipeline.NewReloadable(d.name, name),
	}
	d.instances[name] = i
	return i
}

// buildInstance makes the first version of i. Whatever becomes of it, a says so.
func (r *Registry) buildInstance(i *instance, a *attempt, here uint64) {
	defer func() {
		r.mu.Lock()
		defer r.mu.Unlock()
		i.attempt = nil
		if r.builders[here] = a.around; a.around == nil {
			delete(r.builders, here)
		}
		if a.err != nil {
			r.forgetUnbuilt(i)
		}
		close(a.done)
	}()
	for {
		again, err := r.tryFirst(i, a)
		if !again {
			a.err = err // until then it is that of a build that has left
			return
		}
	}
}

// tryFirst builds once. It wants to be called again if the definition has changed
// meanwhile.
func (r *Registry) tryFirst(i *instance, a *attempt) (again bool, err error) {
	r.mu.Lock()
	f, turn := i.definition.build, i.definition.turn
	r.mu.Unlock()
	if f == nil {
		return false, fmt.Errorf("%w: %q", ErrNotDefined, i.name)
	}
	b, err := r.build(i, f, nil, a)
	r.mu.Lock()
	switch {
	case r.closed:
		err = errors.Join(ErrClosed, err)
	case i.removed:
		err = errors.Join(fmt.Errorf("%w: %s", ErrRemoved, i.id), err)
	case i.current != nil: // a change has built it meanwhile
		err = nil
	case i.definition.turn != turn:
		again, err = true, nil
	case err == nil:
		var c committed
		if c, err = r.commit([]*build{b}); err == nil {
			r.mu.Unlock()
			r.settle(c)
			return false, nil
		}
	}
	r.mu.Unlock()
	if b != nil {
		_ = r.discard(context.Background(), b) // reported; it is no reason not to have the pipeline
	}
	return again, err
}

// forgetUnbuilt keeps names whose first build fails from filling the registry, but
// not handles that somebody may have. The registry is locked.
func (r *Registry) forgetUnbuilt(i *instance) {
	if i.current == nil && !i.handed && i.definition.instances[i.instance] == i && i.instance != i.definition.usual {
		delete(i.definition.instances, i.instance)
	}
}
