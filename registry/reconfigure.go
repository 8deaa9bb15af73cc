package registry

import (
	"fmt"
	"slices"
)

// A reconfiguring gives limiters other options, one after the other. The registry is
// locked.
type reconfiguring struct{ undo []func() }

// reconfigure gives the limiters the options that the builds want. If one refuses,
// it and those before it get back what they had: a partitioned one may have gone
// half the way. Those in a store come last: other instances see at once what is told
// there, and are not to see what is then taken back.
func reconfigure(builds []*build) error {
	var r reconfiguring
	for _, shared := range []bool{false, true} {
		for _, b := range builds {
			for _, u := range b.uses {
				if u.shared != shared {
					continue
				}
				if err := r.reconfigure(u); err != nil {
					r.takeBack()
					return &faultError{fmt.Errorf("registry: limiter %q: %w", u.id.name, err), []id{b.instance.id}}
				}
			}
		}
	}
	return nil
}

func (r *reconfiguring) reconfigure(u *use) error {
	l, before := u.ownedLimiter, u.ownedLimiter.options
	if before == u.options {
		return nil
	}
	r.undo = append(r.undo, func() {
		_ = guarded(func() error { return l.reconfigure(before) }) // they were valid before
		l.options = before
	})
	// It may be the program's, and the registry is locked.
	if err := guarded(func() error { return l.reconfigure(u.options) }); err != nil {
		return err
	}
	l.options = u.options
	return nil
}

func (r *reconfiguring) takeBack() {
	for _, f := range slices.Backward(r.undo) {
		f()
	}
}
