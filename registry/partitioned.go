package registry

import (
	"errors"
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/rate"
)

// Partitioned returns the registry's partitioned limiter of that name. For every key that the function key returns, it
// has a limiter with the options in each. If o is nil, the defaults apply to the partitions as a whole. The
// limiter is kept across reloads like that of [Builder.Limiter]. When the options change, every partition gets them
// in place. Once a call for a key has been decided by the new options, no call for that key is decided by the old ones.
//
// The limiter has one key function: that of the version that came into force last. It is used for all pipelines, and
// also for executions that began earlier. Functions cannot be compared, so it is no error if two pipelines that share
// the limiter give different ones. For example, if one pipeline's function returns the user and the other's the
// tenant, the requests of both count by tenant once the second pipeline is in force. Pipelines with different keys
// need limiters of different names. For pipelines in a file, package reload checks that they name the same function.
//
// Another type of R or K or another kind makes another limiter.
func Partitioned[R any, K comparable](b *Builder, name string, key func(R) K, each limiter.Options, o *limiter.PartitionedOptions) *limiter.PartitionedLimiter[R, K] {
	options := LimiterConfig{Limits: rate.Of(each)}
	if o != nil {
		options.Partitions = *o
	}
	invalid := errors.Join(options.Limits.Validate(), options.Partitions.Validate())
	if key == nil {
		invalid = notSet("key")
	}
	kind := fmt.Sprintf("partitioned %s by %v of %v", kindName(options.Limits), reflect.TypeFor[K](), reflect.TypeFor[R]())
	want := resourceID{resourceKey{name: name}, kind, reflect.TypeFor[adjustablePartitioned[R, K]]()}
	used, err := b.use(want, options, invalid, func() (*resource, error) {
		p, err := newPartitioned(key, options)
		return &resource{value: p.limiter, reconfigure: p.reconfigure, partitioned: p}, err
	})
	if err != nil {
		b.problem(err)
		return nil
	}
	in := used.partitioned.(*adjustablePartitioned[R, K])
	b.version.uses[want.resourceKey].onSwap = func() { in.key.Store(&key) }
	return in.limiter
}

// adjustablePartitioned is a partitioned limiter whose key function and options can change.
type adjustablePartitioned[R any, K comparable] struct {
	limiter *limiter.PartitionedLimiter[R, K]
	key     atomic.Pointer[func(R) K]
	factory atomic.Pointer[limiter.Factory[K]]
}

func newPartitioned[R any, K comparable](key func(R) K, o LimiterConfig) (p *adjustablePartitioned[R, K], err error) {
	p = &adjustablePartitioned[R, K]{}
	p.key.Store(&key)
	p.setFactory(o.Limits)
	factory := limiter.Factory[K](func(k K) (limiter.Limiter, error) { return (*p.factory.Load())(k) })
	p.limiter, err = limiter.NewPartitionedByKey(func(resource R) K { return (*p.key.Load())(resource) }, factory, &o.Partitions)
	return p, err
}

// setFactory sets the limits of new partitions.
func (p *adjustablePartitioned[R, K]) setFactory(each rate.Limits) {
	f := limiter.FactoryFor[K](each)
	p.factory.Store(&f)
}

// reconfigure sets the options of new partitions before it changes the existing ones. In the other order a partition
// could be made with the old options after the walk over the existing ones. Both options are valid, so that only the limiter of a
// key that the program has closed refuses them: it has no limits any more.
func (p *adjustablePartitioned[R, K]) reconfigure(options any) error {
	o := options.(LimiterConfig)
	p.setFactory(o.Limits)
	_ = p.limiter.Apply(func(_ K, l limiter.Limiter) error {
		_ = l.(limiter.Configurable).Reconfigure(o.Limits)
		return nil
	})
	return p.limiter.Reconfigure(o.Partitions)
}
