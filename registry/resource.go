package registry

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/weir-go/weir/internal/recovered"
)

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

func newResourceID(name, kind string, of any) resourceID {
	return resourceID{resourceKey{name: name}, kind, of}
}

// A resource is a limiter that the registry has made, or a value of [Keep]. It is closed when no version uses it any
// more, whether staged, in force or draining.
type resource struct {
	id          resourceID
	value       any
	reconfigure func(options any) error
	options     any              // the options that the versions in force want; of a comparable type
	override    *override        // nil: none; guarded by r.mu, and changes only while busy is set
	partitioned any              // an adjustablePartitioned; otherwise nil
	inStore     storeLimiter     // not nil: a limiter in a store, see [Shared]
	users       int              // how many versions use it; guarded by r.mu
	busy        *reconfiguration // the reconfiguration that is changing its options now, or nil; guarded by r.mu
	observation observation
}

// inForce returns the options that are in force when the versions want these, except for a limiter in a store. The caller
// holds r.mu or has set busy.
func (res *resource) inForce(options any) any {
	return res.override.on(options)
}

// on returns the options of a limiter while it is overridden; nil overrides nothing.
func (o *override) on(options any) any {
	if o == nil {
		return options
	}
	to := options.(LimiterOptions)
	to.Limits = o.Options.Limits()
	return to
}

// A resourceUse is a resource and the options that one version wants it to have.
type resourceUse struct {
	*resource
	options  any
	onCommit func() // called when the version comes into force; can be nil
}

// useResource returns the resource with that id and records that this version uses it. If there is none, it adds the
// one that fresh returns. If fresh is nil, it returns nil.
func (b *Builder) useResource(want resourceID, options any, fresh func() (*resource, error)) (*resource, error) {
	if want.name == "" {
		return nil, fmt.Errorf("a %s of the registry needs a name", want.kind)
	}
	if u := b.version.uses[want.resourceKey]; u != nil {
		if u.id != want || u.options != options {
			return nil, conflict(b.version.instance.id, u, b.version.instance.id, &resourceUse{resource: &resource{id: want}, options: options})
		}
		return u.resource, nil
	}
	r := b.registry
	r.mu.Lock()
	defer r.mu.Unlock()
	used := r.resources[want]
	if used == nil && fresh == nil {
		return nil, nil
	}
	if used == nil {
		var err error
		if used, err = fresh(); err != nil {
			return nil, err
		}
		used.id, used.options = want, options
		r.resources[want] = used
		r.sameName[want.resourceKey]++
	}
	used.users++
	b.version.uses[want.resourceKey] = &resourceUse{resource: used, options: options}
	return used, nil
}

// conflict returns the error of pipelines a and b, which want different kinds or options of one resource. It shows
// values only of weir's own options, because the program's options can be secret. For the program's options it names
// the fields that differ.
func conflict(a id, ua *resourceUse, b id, ub *resourceUse) error {
	if ua.id.isKept() {
		err := fmt.Errorf("%w: %v: pipelines %s and %s: %s",
			ErrLimiterConflict, ua.id.resourceKey, a, b, difference(ua.options, ub.options))
		return &faultError{err, []id{a, b}}
	}
	err := fmt.Errorf("%w: %v: pipeline %s wants a %s with %v, pipeline %s wants a %s with %v",
		ErrLimiterConflict, ua.id.resourceKey, a, ua.id.kind, ua.options, b, ub.id.kind, ub.options)
	if ua.id.kind == ub.id.kind && ua.options == ub.options {
		err = fmt.Errorf("%w, in another store or with other types", err)
	}
	return &faultError{err, []id{a, b}}
}

// difference names the fields in which two options differ.
func difference(a, b any) string {
	va, vb := reflect.ValueOf(a), reflect.ValueOf(b)
	if va.Type() != vb.Type() {
		return "the options have different types"
	}
	var names []string
	if va.Kind() == reflect.Struct {
		for i := range va.NumField() {
			if f := va.Type().Field(i); f.IsExported() && !va.Field(i).Equal(vb.Field(i)) {
				names = append(names, f.Name)
			}
		}
	}
	if len(names) == 0 {
		return "the options differ"
	}
	return "the options differ in " + strings.Join(names, ", ")
}

// checkConflicts returns an error if two versions want different options of one resource. Only the first elements of
// inForce, as many as fresh says, are new; the others have been compared with each other.
func checkConflicts(inForce []*version, fresh int) error {
	first := make(map[resourceKey]*version)
	for i, v := range inForce {
		for key, u := range v.uses {
			if other := first[key]; other == nil {
				if i < fresh {
					first[key] = v
				}
			} else if o := other.uses[key]; o.id != u.id || o.options != u.options {
				return conflict(other.instance.id, o, v.instance.id, u)
			}
		}
	}
	return nil
}

// release is called when a version does not use its resources any more. It closes resources that no version uses and
// calls failed with what goes wrong.
func (r *Registry) release(uses map[resourceKey]*resourceUse, failed func(error)) {
	var unused []*resource
	r.mu.Lock()
	for _, u := range uses {
		u.users--
		if u.users == 0 {
			delete(r.resources, u.id)
			if r.sameName[u.id.resourceKey]--; r.sameName[u.id.resourceKey] == 0 {
				delete(r.sameName, u.id.resourceKey)
			}
			unused = append(unused, u.resource)
		}
	}
	r.mu.Unlock()
	for _, res := range unused {
		// Deferred, so that each is closed even if the Close of another one calls runtime.Goexit.
		defer func() {
			if err := res.close(); err != nil {
				failed(err)
			}
		}()
		defer r.leaveInStore(res)
	}
}

// close closes the resource and calls the function that ObserveLimiter has returned for it.
func (res *resource) close() (err error) {
	defer func() {
		if c, ok := res.value.(io.Closer); ok {
			err = errors.Join(err, recovered.Error(c.Close))
		}
	}()
	return recovered.Error(res.observation.end)
}
