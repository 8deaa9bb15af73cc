package registry

import (
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/recovered"
)

// A reconfiguration gives limiters other options, all of them or none. Until it is over the limiters are busy: only
// its goroutine may change them.
type reconfiguration struct {
	registry  *Registry
	goroutine uint64
	uses      []*resourceUse // one of each limiter, in the order of their reconfiguration
	by        []id           // the pipelines that the uses belong to
	changed   int            // how many of the limiters have been reconfigured, perhaps the last one in vain
	committed bool           // the limiters keep the new options
	over      chan struct{}  // closed when the limiters are not busy any more
}

// startReconfiguration returns the reconfiguration that gives the limiters the options that the builds want, and
// makes the limiters busy. It returns nil if they have these options. Limiters in a store come last: other instances
// see new limits at once, and must not see limits that are then undone. The caller holds r.mu.
func (r *Registry) startReconfiguration(versions []*version, goid uint64) *reconfiguration {
	t := &reconfiguration{registry: r, goroutine: goid, over: make(chan struct{})}
	for _, shared := range []bool{false, true} {
		for _, v := range versions {
			for _, u := range v.uses {
				if u.shared == shared && u.busy == nil && u.resource.options != u.options {
					u.busy = t
					t.uses, t.by = append(t.uses, u), append(t.by, v.instance.id)
				}
			}
		}
	}
	if len(t.uses) == 0 {
		return nil
	}
	return t
}

// run reconfigures the limiters and puts in force what prepare returns. If a limiter refuses its options, it and those
// before it get their old options again; a partitioned one may have changed some of its partitions. again is true if
// other limiters have to be reconfigured by now.
func (t *reconfiguration) run(prepare func() (staged, error)) (done committed, again bool, err error) {
	defer t.end()
	for i, u := range t.uses {
		t.changed++
		if err := recovered.Error(func() error { return u.reconfigure(u.options) }); err != nil {
			return committed{}, false, &faultError{fmt.Errorf("registry: %v: %w", u.id, err), []id{t.by[i]}}
		}
	}
	r := t.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := prepare()
	if err == nil {
		err = r.check(c)
	}
	if err != nil {
		return committed{}, false, err
	}
	if !t.suffices(c.versions) {
		return committed{}, true, nil
	}
	for _, u := range t.uses {
		u.resource.options = u.options
	}
	t.committed = true
	return r.putInForce(c), false, nil
}

// suffices reports whether the limiters have the options that the builds want. The caller holds r.mu.
func (t *reconfiguration) suffices(versions []*version) bool {
	got := make(map[*resource]any, len(t.uses))
	for _, u := range t.uses {
		got[u.resource] = u.options
	}
	for _, v := range versions {
		for _, u := range v.uses {
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

// end makes the limiters free again, with their old options unless the commit has succeeded. The steps are deferred,
// so that all of them run even if a function calls [runtime.Goexit].
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
	for _, u := range t.uses[:t.changed] { // deferred, so the last one is first
		defer func() { _ = recovered.Error(func() error { return u.reconfigure(u.resource.options) }) }() // no error: they were in force
	}
}

// waitFor waits until a reconfiguration of another goroutine is over.
func (r *Registry) waitFor(t *reconfiguration) error {
	select {
	case <-t.over: // without a timer
		return nil
	default:
	}
	stuck := time.NewTimer(maxWait)
	defer stuck.Stop()
	select {
	case <-t.over:
		return nil
	case <-r.closing.called:
		return ErrClosed
	case <-stuck.C:
		return fmt.Errorf("%w: a Reconfigure function of %v has not returned for %v", ErrReloading, t.uses[0].id, maxWait)
	}
}
