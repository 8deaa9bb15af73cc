package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/pipeline"
)

// A reconfiguration gives limiters other options, all of them or none. Until it is over the limiters are busy: only
// its goroutine may change them.
type reconfiguration struct {
	registry  *Registry
	goroutine uint64
	uses      []*resourceUse // one of each limiter, in the order of their reconfiguration
	by        []id           // the pipelines that the uses belong to
	changed   int            // how many of the limiters were asked to change; the last of them may have refused
	committed bool           // the limiters keep the new options
	over      chan struct{}  // closed when the limiters are not busy any more
}

// startReconfiguration returns the reconfiguration that gives the limiters the options that the builds want, and
// makes the limiters busy. It returns nil if they have these options. Limiters in a store come last: other instances
// see new limits at once, and must not see limits that are then undone. The caller holds r.mu.
func (r *Registry) startReconfiguration(versions []*version, goid uint64) *reconfiguration {
	rc := &reconfiguration{registry: r, goroutine: goid, over: make(chan struct{})}
	for _, shared := range []bool{false, true} {
		for _, v := range versions {
			for _, u := range v.uses {
				if (u.inStore != nil) == shared && u.busy == nil && u.resource.options != u.options {
					u.busy = rc
					rc.uses, rc.by = append(rc.uses, u), append(rc.by, v.instance.id)
				}
			}
		}
	}
	if len(rc.uses) == 0 {
		return nil
	}
	return rc
}

// run reconfigures the limiters and puts in force what prepare returns. If a limiter refuses its options, the limiters
// before it get their old options again, and so does the limiter that refused: a partitioned one may have changed some
// of its partitions. again is true if other limiters have to be reconfigured by now.
func (rc *reconfiguration) run(prepare func() (staged, error)) (done committed, again bool, err error) {
	defer rc.end()
	for i, u := range rc.uses {
		rc.changed++
		if err := recovered.Error(func() error { return u.reconfigureFrom(u.resource.options, u.options) }); err != nil {
			return committed{}, false, &faultError{fmt.Errorf("registry: %v: %w", u.id, err), []id{rc.by[i]}}
		}
	}
	r := rc.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	c, err := prepare()
	if err == nil {
		err = r.check(c)
	}
	if err != nil {
		return committed{}, false, err
	}
	if !rc.suffices(c.versions) {
		return committed{}, true, nil
	}
	for _, u := range rc.uses {
		u.resource.options = u.options
	}
	rc.committed = true
	return r.putInForce(c), false, nil
}

// suffices reports whether the limiters have the options that the builds want. The caller holds r.mu.
func (rc *reconfiguration) suffices(versions []*version) bool {
	got := make(map[*resource]any, len(rc.uses))
	for _, u := range rc.uses {
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
func (rc *reconfiguration) end() {
	defer func() {
		rc.registry.mu.Lock()
		defer rc.registry.mu.Unlock()
		for _, u := range rc.uses {
			u.busy = nil
		}
		close(rc.over)
	}()
	if rc.committed {
		return
	}
	for _, u := range rc.uses[:rc.changed] { // deferred, so the last one is first
		// It cannot fail: the options were in force.
		defer func() {
			_ = recovered.Error(func() error { return u.reconfigureFrom(u.options, u.resource.options) })
		}()
	}
}

// reconfigureFrom gives the limiter the options to in place of from. An override stays in force.
func (res *resource) reconfigureFrom(from, to any) error {
	if res.override != nil {
		if from, to = res.inForce(from), res.inForce(to); from == to {
			return nil
		}
	}
	return res.reconfigure(to)
}

// waitFor waits until a reconfiguration of another goroutine is over, or ctx ends.
func (r *Registry) waitFor(ctx context.Context, rc *reconfiguration) error {
	select {
	case <-rc.over: // without a timer
		return nil
	default:
	}
	stuck := time.NewTimer(maxWait)
	defer stuck.Stop()
	select {
	case <-rc.over:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("registry: before changing %v: %w", rc.uses[0].id, pipeline.ContextError(ctx))
	case <-r.closing.called:
		return ErrClosed
	case <-stuck.C:
		return fmt.Errorf("%w: a Reconfigure function of %v has not returned for %v", ErrReloading, rc.uses[0].id, maxWait)
	}
}
