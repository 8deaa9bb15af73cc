package limiter

import "sync"

// ConcurrencyFactory makes a [Concurrency] limiter for each key. Options that are
// invalid are an error of every call that needs one.
func ConcurrencyFactory[K comparable](o ConcurrencyOptions) Factory[K] {
	return func(K) (Limiter, error) { return made(NewConcurrency(o)) }
}

// FixedWindowFactory makes a [FixedWindow] for each key. Options that are invalid
// are an error of every call that needs one.
func FixedWindowFactory[K comparable](o FixedWindowOptions) Factory[K] {
	shared := sharedState{limits: o.limits()}
	return func(K) (Limiter, error) {
		if err := o.Validate(); err != nil {
			return nil, err
		}
		w := &FixedWindow{}
		w.start(shared.get())
		return w, nil
	}
}

// SlidingWindowFactory makes a [SlidingWindow] for each key. Options that are
// invalid are an error of every call that needs one.
func SlidingWindowFactory[K comparable](o SlidingWindowOptions) Factory[K] {
	return func(K) (Limiter, error) { return made(NewSlidingWindow(o)) }
}

// TokenBucketFactory makes a [TokenBucket] for each key. Options that are invalid
// are an error of every call that needs one.
func TokenBucketFactory[K comparable](o TokenBucketOptions) Factory[K] {
	shared := sharedState{limits: o.limits()}
	return func(K) (Limiter, error) {
		if err := o.Validate(); err != nil {
			return nil, err
		}
		b := &TokenBucket{}
		b.start(shared.get())
		return b, nil
	}
}

// UnlimitedFactory makes an [Unlimited] for each key, each with its own figures.
func UnlimitedFactory[K comparable]() Factory[K] {
	return func(K) (Limiter, error) { return NewUnlimited(), nil }
}

// made keeps a nil *L from becoming a Limiter that is not nil.
func made[L Limiter](l L, err error) (Limiter, error) {
	if err != nil {
		return nil, err
	}
	return l, nil
}

// sharedState makes the state that the buckets of one factory have in common.
type sharedState struct {
	limits bucketLimits
	once   sync.Once
	state  *bucketState
}

func (s *sharedState) get() *bucketState {
	if s.limits.manual {
		return newBucketState(s.limits) // each has a time of its own
	}
	s.once.Do(func() { s.state = newBucketState(s.limits).shareable() })
	return s.state
}
