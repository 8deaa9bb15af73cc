package limiter

// ConcurrencyFactory makes a [Concurrency] limiter for each key. Options that are
// invalid are an error of every call that needs one.
func ConcurrencyFactory[K comparable](o ConcurrencyOptions) Factory[K] {
	return func(K) (Limiter, error) { return made(NewConcurrency(o)) }
}

// FixedWindowFactory makes a [FixedWindow] for each key, whose first window begins with
// its first call. Options that are invalid are an error of every call that needs one.
func FixedWindowFactory[K comparable](o FixedWindowOptions) Factory[K] {
	state, err := newBucketFamily(o.limits(), o.Validate(), (*bucketWithEntry[FixedWindow, K])(nil))
	return func(K) (Limiter, error) {
		if err != nil {
			return nil, err
		}
		k := new(bucketWithEntry[FixedWindow, K])
		k.bucket.startWithFirstCall(state())
		return &k.bucket, nil
	}
}

// SlidingWindowFactory makes a [SlidingWindow] for each key. Options that are
// invalid are an error of every call that needs one.
func SlidingWindowFactory[K comparable](o SlidingWindowOptions) Factory[K] {
	return func(K) (Limiter, error) { return made(NewSlidingWindow(o)) }
}

// TokenBucketFactory makes a [TokenBucket] for each key, whose grid begins with its
// first call. Options that are invalid are an error of every call that needs one.
func TokenBucketFactory[K comparable](o TokenBucketOptions) Factory[K] {
	state, err := newBucketFamily(o.limits(), o.Validate(), (*bucketWithEntry[TokenBucket, K])(nil))
	return func(K) (Limiter, error) {
		if err != nil {
			return nil, err
		}
		k := new(bucketWithEntry[TokenBucket, K])
		k.bucket.startWithFirstCall(state())
		return &k.bucket, nil
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
