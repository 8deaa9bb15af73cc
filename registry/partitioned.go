package registry

import (
	"fmt"
	"reflect"
	"sync/atomic"

	"github.com/weir-go/weir/internal/fixedhash"
	"github.com/weir-go/weir/limiter"
)

// PartitionedOptions are the [LimiterInfo.Options] of a partitioned limiter. All of them can change in place.
type PartitionedOptions[O LimiterOptions] struct {
	Each O
	limiter.PartitionedOptions
}

// Partitioned returns the registry's partitioned limiter of that name. For every key that the function key returns, it
// has a limiter with the options in each. If o is nil, the options of the partitions as a whole are the defaults. The
// limiter is kept across reloads like that of [Builder.TokenBucket]. When the options change, every partition gets them
// in place. Once a call has been decided by the new options, no call is decided by the old ones.
//
// The limiter has one key function: that of the version that came into force last. It is used for all pipelines, and
// also for executions that began earlier. Functions cannot be compared, so it is no error if two pipelines that share
// the limiter give different ones. For example, if one pipeline's function returns the user and the other's the
// tenant, the requests of both count by tenant once the second pipeline is in force. Pipelines with different keys
// need limiters of different names. For pipelines in a file, package reload checks that they name the same function.
//
// Another type of R, K or O makes another limiter.
func Partitioned[R any, K comparable, O LimiterOptions](b *Builder, name string, key func(R) K, each O, o *limiter.PartitionedOptions) *limiter.PartitionedLimiter[R, K] {
	want := PartitionedOptions[O]{Each: each}
	if o != nil {
		want.PartitionedOptions = *o
	}
	p := &adjustablePartitioned[R, K, O]{}
	fresh, err := p.start(key, want)
	if err != nil {
		b.problem(fmt.Errorf("limiter %q: %w", name, err))
		return placeholderPartitioned[R, K]()
	}
	if b.registry.interposer() != nil {
		fixedhash.Use(fresh)
	}
	kind := fmt.Sprintf("partitioned %s by %v of %v", kindName(each), reflect.TypeFor[K](), reflect.TypeFor[R]())
	wanted := newResourceID(name, kind, reflect.TypeFor[adjustablePartitioned[R, K, O]]())
	used, err := b.useResource(wanted, want, func() (*resource, error) {
		return &resource{value: fresh, limits: limitsOfEach[O](), reconfigure: p.reconfigure, partitioned: p}, nil
	})
	if err != nil {
		b.problem(err)
		return fresh
	}
	in := used.partitioned.(*adjustablePartitioned[R, K, O])
	b.version.uses[wanted.resourceKey].onCommit = func() { in.key.Store(&key) }
	return in.limiter
}

// limitsOfEach are the limits of each partition. An override leaves the options of the partitions as a whole as they are.
func limitsOfEach[O LimiterOptions]() overridable {
	return limitsOf[O, PartitionedOptions[O]]{
		func(o PartitionedOptions[O]) O { return o.Each },
		func(o PartitionedOptions[O], each O) PartitionedOptions[O] { o.Each = each; return o },
	}
}

// placeholderPartitioned returns a limiter in place of one that could not be made, so that the build function can go
// on.
func placeholderPartitioned[R any, K comparable]() *limiter.PartitionedLimiter[R, K] {
	none := func(R) (p limiter.Partition[K]) { return p }
	p, _ := limiter.NewPartitioned(none, nil)
	return p
}

// adjustablePartitioned is a partitioned limiter whose key function and options can change.
type adjustablePartitioned[R any, K comparable, O LimiterOptions] struct {
	limiter *limiter.PartitionedLimiter[R, K]
	key     atomic.Pointer[func(R) K]
	factory atomic.Pointer[limiter.Factory[K]]
}

// start makes the limiter.
func (p *adjustablePartitioned[R, K, O]) start(key func(R) K, o PartitionedOptions[O]) (*limiter.PartitionedLimiter[R, K], error) {
	if key == nil {
		return nil, notSet("key")
	}
	if err := o.Each.Validate(); err != nil {
		return nil, err
	}
	p.key.Store(&key)
	p.use(o.Each)
	var err error
	factory := limiter.Factory[K](func(k K) (limiter.Limiter, error) { return (*p.factory.Load())(k) })
	p.limiter, err = limiter.NewPartitionedByKey(func(resource R) K { return (*p.key.Load())(resource) }, factory, &o.PartitionedOptions)
	return p.limiter, err
}

// use sets the options of new partitions.
func (p *adjustablePartitioned[R, K, O]) use(each O) {
	var f limiter.Factory[K]
	switch o := any(each).(type) {
	case limiter.TokenBucketOptions:
		f = limiter.TokenBucketFactory[K](o)
	case limiter.FixedWindowOptions:
		f = limiter.FixedWindowFactory[K](o)
	case limiter.SlidingWindowOptions:
		f = limiter.SlidingWindowFactory[K](o)
	case limiter.ConcurrencyOptions:
		f = limiter.ConcurrencyFactory[K](o)
	}
	p.factory.Store(&f)
}

// reconfigure sets the options of new partitions before it changes the existing ones. In the other order a partition
// could be made with the old options after the walk over the existing ones.
func (p *adjustablePartitioned[R, K, O]) reconfigure(options any) error {
	o := options.(PartitionedOptions[O])
	if err := p.limiter.Reconfigure(o.PartitionedOptions); err != nil {
		return err
	}
	p.use(o.Each)
	return p.limiter.Apply(func(key K, l limiter.Limiter) error {
		if err := l.(interface{ Reconfigure(O) error }).Reconfigure(o.Each); err != nil {
			return fmt.Errorf("key %v: %w", key, err)
		}
		return nil
	})
}
