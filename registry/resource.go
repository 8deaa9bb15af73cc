package registry

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/weir-go/weir/internal/recovered"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/rate"
	"github.com/weir-go/weir/store"
)

// LimiterConfig are what pipelines want of a limiter of the registry.
type LimiterConfig struct {
	// Limits are the limits; of a partitioned limiter, those of each key.
	Limits rate.Limits
	// Partitions are the options of the partitions as a whole, if the limiter is partitioned and in this process.
	Partitions limiter.PartitionedOptions
	// Shared are the other options of a limiter whose state is in a store. If they change, another limiter is made.
	Shared store.LimiterOptions
}

// String returns the options as errors and events show them, without zero ones.
func (o LimiterConfig) String() string {
	text := fmt.Sprintf("%+v", limiter.OptionsOf(o.Limits))
	if o.Partitions != (limiter.PartitionedOptions{}) {
		text += fmt.Sprintf(" %+v", o.Partitions)
	}
	if o.Shared != (store.LimiterOptions{}) {
		text += fmt.Sprintf(" %+v", o.Shared)
	}
	return text
}

// A resourceKey is the name of a resource. The names of limiters, and those of each Kind of [Kept], are separate.
type resourceKey struct {
	space string // "" for limiters, or a Kept's Kind
	name  string
}

// String returns the name as errors have it.
func (k resourceKey) String() string { return fmt.Sprintf("%s %q", cmp.Or(k.space, "limiter"), k.name) }

// A resourceID identifies a resource. Two of the same name and different kinds are different resources.
type resourceID struct {
	resourceKey

	kind     string
	identity any // the types of a partitioned limiter; a sharedIdentity; a keptIdentity; otherwise nil
}

// isKept reports whether the resource is a value of [Keep].
func (i resourceID) isKept() bool { return i.space != "" }

// A resource is a limiter that the registry has made, or a value of [Keep]. It is closed when no version uses it any
// more, whether staged, in force or draining.
type resource struct {
	id          resourceID
	value       any
	reconfigure func(options any) error
	partitioned any          // an adjustablePartitioned; otherwise nil
	inStore     storeLimiter // not nil: a limiter in a store, see [Shared]
	unobserve   func()       // what ObserveLimiter has returned; can be nil; set while its call counts as a user

	// The mutex of the registry guards the following. Only who has reconfiguring changes options and override, but for leaveOverride,
	// which ends the override of a limiter that is about to be closed.
	options   any       // the options that the versions in force want; of a comparable type
	override  *override // nil: none
	reports   []func()  // of overrides, for reportOverrides
	reporting bool      // one of the reports is being made
	observed  bool      // ObserveLimiter was called
	users     int       // how many versions use it
	inForce   int       // how many of them are in force
}

// A resourceUse is a resource and the options that one version wants it to have.
type resourceUse struct {
	*resource

	wanted any
	onSwap func() // called when the version comes into force; can be nil
}

// sameLimits reports whether old has set the limits of u already.
func (old *resourceUse) sameLimits(u *resourceUse) bool {
	if old.resource == u.resource {
		return true
	}
	if old.inStore == nil || old.id.kind != u.id.kind || old.id.identity.(sharedIdentity).store != u.id.identity.(sharedIdentity).store {
		return false
	}
	return old.wanted.(LimiterConfig).Limits == u.wanted.(LimiterConfig).Limits
}

// A sharedIdentity is the identity of a limiter in a store in its resourceID.
type sharedIdentity struct {
	store *store.Store
	how   store.LimiterOptions
}

var _ map[sharedIdentity]bool // it is comparable

// storeLimiter is what the registry needs of a limiter in a store. The store keeps the override, for all instances.
type storeLimiter interface {
	ReconfigureLater(o limiter.Options) error
	Override(o store.Override) error
	EndOverride(by string) error
	Overridden() (store.Override, bool)
	OnOverride(f func(store.Override))
	Close() error
}

// reconfigureFrom gives the resource the options to in place of from. An override stays in force.
func (res *resource) reconfigureFrom(from, to any) error {
	if from, to = res.override.effective(from), res.override.effective(to); from == to {
		return nil
	}
	return res.reconfigure(to)
}

// conflict returns the error of pipelines a and b, which want different kinds or options of one resource. It shows the options
// of limiters, and not those of the program, which can be secret.
func conflict(a id, ua *resourceUse, b id, ub *resourceUse) error {
	err := fmt.Errorf("%w: %v: pipelines %s and %s want different options", ErrLimiterConflict, ua.id.resourceKey, a, b)
	if !ua.id.isKept() {
		err = fmt.Errorf("%w: %v: pipeline %s wants a %s with %v, pipeline %s wants a %s with %v",
			ErrLimiterConflict, ua.id.resourceKey, a, ua.id.kind, ua.wanted, b, ub.id.kind, ub.wanted)
		if ua.id.kind == ub.id.kind && ua.wanted == ub.wanted {
			err = fmt.Errorf("%w, in another store or with other types", err)
		}
	}
	return &faultError{err, []id{a, b}}
}

// A faultError is an error for which only some of the pipelines of a change are to blame.
type faultError struct {
	error
	pipelines []id
}

func (e *faultError) Unwrap() error { return e.error }

// resources are the limiters and kept values of a registry.
type resources struct {
	mu            *sync.Mutex // of the registry: guards what follows but reconfiguring
	events        *events
	closed        <-chan struct{} // of the registry
	reconfiguring turn            // of who gives limiters other options
	all           map[resourceID]*resource
	byName        map[resourceKey]*resource // what versions in force use
}

// leaveForce is called when a version is no longer in force. The caller holds mu.
func (r *resources) leaveForce(v *version) {
	for key, u := range v.uses {
		if u.inForce--; u.inForce == 0 && r.byName[key] == u.resource {
			delete(r.byName, key)
		}
	}
}

// observe calls ObserveLimiter for resources with new ones in force.
func (r *resources) observe(all []*resource, observe func(string, limiter.StatisticsProvider) func()) {
	for _, res := range all {
		recovered.Hook("registry: ObserveLimiter", func() {
			res.unobserve = observe(strings.TrimPrefix(res.id.space+" "+res.id.name, " "), res.value.(limiter.StatisticsProvider))
		})
		_ = r.release(res) // if nothing else uses it by now
	}
}

// release is called when one user less has the resource. It closes the resource if that was the last.
func (r *resources) release(res *resource) error {
	r.mu.Lock()
	res.users--
	last := res.users == 0
	if last {
		delete(r.all, res.id)
	}
	r.mu.Unlock()
	if !last {
		return nil
	}
	r.leaveOverride(res)
	var errs []error
	if res.unobserve != nil {
		errs = append(errs, recovered.Error(func() error { res.unobserve(); return nil }))
	}
	if c, ok := res.value.(io.Closer); ok {
		errs = append(errs, recovered.Error(c.Close))
	}
	return errors.Join(errs...)
}

// A turn is a mutex whose Lock can be given up. It has an element while it is taken.
type turn chan struct{}

// take waits for the turn. The caller gives it back with leave.
func (t turn) take(ctx context.Context, closed <-chan struct{}) error {
	select {
	case t <- struct{}{}:
		if ctx.Err() == nil {
			return nil
		}
		t.leave()
	case <-ctx.Done():
	case <-closed:
		return ErrClosed
	}
	return fmt.Errorf("registry: waiting for another change: %w", pipeline.ContextError(ctx))
}

func (t turn) leave() { <-t }
