package registry

import (
	"fmt"
	"time"
)

// A reconfiguring gives limiters other options, all of them or none. Until it is over
// the limiters are busy, and belong to the goroutine that it runs on.
type reconfiguring struct {
	registry *Registry
	here     uint64
	uses     []*use        // one of each limiter, in the order in which they get their options
	by       []id          // the pipeline that each is for
	undo     []func()      // what gives them back what they had
	kept     bool          // they keep what they got
	over     chan struct{} // closed when they are not busy any more
}

// reconfiguring returns what gives the limiters the options that the builds want, nil
// if they all have them, and makes the limiters busy. Those in a store come last: other
// instances see at once what is told there, and are not to see what is then taken back.
// The registry is locked.
func (r *Registry) reconfiguring(builds []*build, here uint64) *reconfiguring {
	t := &reconfiguring{registry: r, here: here, over: make(chan struct{})}
	for _, shared := range []bool{false, true} {
		for _, b := range builds {
			for _, u := range b.uses {
				if u.shared == shared && u.busy == nil && u.ownedLimiter.options != u.options {
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
func (t *reconfiguring) commit(prepare func() (candidates, error)) (done committed, err error, again bool) {
	defer t.end()
	for i, u := range t.uses {
		if err := t.reconfigure(u); err != nil {
			return committed{}, &faultError{fmt.Errorf("registry: %v: %w", u.id, err), []id{t.by[i]}}, false
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
		return committed{}, err, false
	}
	if !t.suits(c.builds) {
		return committed{}, nil, true
	}
	for _, u := range t.uses {
		u.ownedLimiter.options = u.options
	}
	t.kept = true
	return r.putInForce(c), nil, false
}

// suits reports whether the limiters have what the builds want. The registry is locked.
func (t *reconfiguring) suits(builds []*build) bool {
	got := make(map[*ownedLimiter]any, len(t.uses))
	for _, u := range t.uses {
		got[u.ownedLimiter] = u.options
	}
	for _, b := range builds {
		for _, u := range b.uses {
			options, ours := got[u.ownedLimiter]
			if !ours {
				options = u.ownedLimiter.options
			}
			if options != u.options || u.busy != nil && !ours {
				return false
			}
		}
	}
	return true
}

func (t *reconfiguring) reconfigure(u *use) error {
	l, before := u.ownedLimiter, u.ownedLimiter.options
	t.undo = append(t.undo, func() { _ = guarded(func() error { return l.reconfigure(before) }) }) // they were valid before
	return guarded(func() error { return l.reconfigure(u.options) })
}

// end gives the limiters back, with what they had unless they keep what they got. It
// goes on if a function leaves the goroutine.
func (t *reconfiguring) end() {
	defer func() {
		t.registry.mu.Lock()
		defer t.registry.mu.Unlock()
		for _, u := range t.uses {
			u.busy = nil
		}
		close(t.over)
	}()
	if t.kept {
		return
	}
	for _, f := range t.undo {
		defer f() // the last one first
	}
}

// await waits until a reconfiguring of another goroutine is over.
func (r *Registry) await(t *reconfiguring) error {
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
	case <-r.closes:
		return ErrClosed
	case <-stuck.C:
		return fmt.Errorf("%w: a Reconfigure function of %v has not returned for %v", ErrReloading, t.uses[0].id, maxWait)
	}
}
