package limiter

import "github.com/weir-go/weir/rate"

// A Factory makes the limiter of one partition. Make the factory once, outside of the partition function: making it
// costs allocations, and buckets of one factory share memory.
type Factory[K comparable] func(key K) (Limiter, error)

// New returns a limiter of the kind that o is. The error is a [weir.OptionsError].
func New(o Options) (Configurable, error) {
	switch o := OptionsOf(rate.Of(o)).(type) {
	case TokenBucketOptions:
		return made(NewTokenBucket(o))
	case FixedWindowOptions:
		return made(NewFixedWindow(o))
	case SlidingWindowOptions:
		return made(NewSlidingWindow(o))
	case ConcurrencyOptions:
		return made(NewConcurrency(o))
	case CalendarOptions:
		return made(NewCalendar(o))
	default:
		return nil, o.Limits().Validate()
	}
}

// FactoryFor returns a factory that makes a limiter with the options o for each key. Its first window, or its grid, begins
// with the first call for the key. If o is invalid, every call that needs a new limiter returns a [weir.OptionsError].
func FactoryFor[K comparable](o Options) Factory[K] {
	if l := rate.Of(o); l.Kind == rate.TokenBucket || l.Kind == rate.FixedWindow {
		return bucketFactory[K](l)
	}
	return func(K) (Limiter, error) { return New(o) }
}

// bucketFactory returns a factory that makes the bucket of a key in its [entry]. The grid begins with the first call, which has read
// the clock: a second reading would be a good part of the time that a new key takes.
func bucketFactory[K comparable](l rate.Limits) Factory[K] {
	if err := l.Validate(); err != nil {
		return func(K) (Limiter, error) { return nil, err }
	}
	f := newBucketFamily(l)
	return func(K) (Limiter, error) {
		e := new(entry[K])
		e.line = notBegun
		e.current.Store(f.stateIn(e))
		return partition[K]{entry: e}.limiter(), nil
	}
}

// made keeps a nil *L from becoming a Configurable that is not nil.
func made[L Configurable](l L, err error) (Configurable, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}
