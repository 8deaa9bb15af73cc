package registry

import (
	"fmt"
	"time"
)

// A reconfiguring gives limiters other options, all of them or none. Until it is over
// the limiters are busy, and belong to the goroutine that it runs on.
type reconfiguration struct {
	registry  *Registry
	goroutine uint64
	uses      []*resourceUse // one of each limiter, in the order in which they get their options
	by        []id           // the pipeline that each is for
	undo      []func()       // what gives them back what they had
	committed bool           // they keep what they got
	over      chan struct{}  // closed when they are not busy any more
}

// reconfiguring returns what gives the limiters the options that the builds want, nil
// if they all have them, and makes the limiters busy. Those in a store come last: other
// instances see at once what is told there, and are not to see what is then taken back.
// The registry is locked.
func (r *Registry) startReconfiguration(builds []*build, here uint64) *reconfiguration {
	t := &reconfiguration{registry: r, goroutine: here, over: make(chan struct{})}
	for _, shared := range []bool{false, true} {
		for _, b := range builds {
			for _, u := range b.uses {
				if u.shared == shared && u.busy == nil && u.resource.options != u.options {
					u.busy = t
					t.uses, t.by = append(t.uses, u), append(t.by, b.instance.id)
				}
			}
		}
	}
	if len(t.uses) == 0 {
		return nil
	}
	return t
}

// commit gives the limiters their options and puts in force what prepare returns. If
// one refuses, it and those before it get back what they had: a partitioned one may
// have gone half the way. again is true if other limiters are to be reconfigured by now.
func (t *reconfiguration) commit(prepare func() (staged, error)) (done commitResult, err error, again bool) {
	defer t.end()
	for i, u := range t.uses {
		if err := t.reconfigure(u); err != nil {
			return commitResult{}, &faultError{fmt.Errorf("registry: %v: %w", u.id, err), []id{t.by[i]}}, false
		}
	}
	r := t.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := prepare()
	if err == nil {
		err = r.check(c.builds, setOf(c.remove))
	}
	if err != nil {
		return commitResult{}, err, false
	}
	if !t.suffices(c.builds) {
		return commitResult{}, nil, true
	}
	for _, u := range t.uses {
		u.resource.options = u.options
	}
	t.committed = true
	return r.putInForce(c), nil, false
}

// suits reports whether the limiters have what the builds want. The registry is locked.
func (t *reconfiguration) suffices(builds []*build) bool {
	got := make(map[*resource]any, len(t.uses))
	for _, u := range t.uses {
		got[u.resource] = u.options
	}
	for _, b := range builds {
		for _, u := range b.uses {
			options, ours := got[u.resource]
			if !ours {
				options = u.resource.options
			}
			if options != u.options || u.busy != nil && !ours {
				return false
			}
		}
	}
	return true
}

func (t *reconfiguration) reconfigure(u *resourceUse) error {
	l, before := u.resource, u.resource.options
	t.undo = append(t.undo, func() { _ = guarded(func() error { return l.reconfigure(before) }) }) // they were valid before
	return guarded(func() error { return l.reconfigure(u.options) })
}

// end gives the limiters back, with what they had unless they keep what they got. It
// goes on if a function leaves the goroutine.
func (t *reconfiguration) end() {
	defer func() {
		t.registry.mu.Lock()
		defer t.registry.mu.Unlock()
		for _, u := range t.uses {
			u.busy = nil
		}
		close(t.over)
	}()
	if t.committed {
		return
	}
	for _, f := range t.undo {
		defer f() // the last one first
	}
}

// await waits until a reconfiguring of another goroutine is over.
func (r *Registry) waitFor(t *reconfiguration) error {
	select {
	case <-t.over: // needs no timer
		return nil
	default:
	}
	stuck := time.NewTimer(maxWait)
	defer stuck.Stop()
	select {
	case <-t.over:
		return nil
	case <-r.closeCalled:
		return ErrClosed
	case <-stuck.C:
		return fmt.Errorf("%w: a Reconfigure function of %v has not returned for %v", ErrReloading, t.uses[0].id, maxWait)
	}
}
