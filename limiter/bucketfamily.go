package limiter

import "sync"

// A bucketFamily has the states that the buckets of one factory share, one for each set of limits that they have had
// lately.
type bucketFamily struct {
	container any // a nil pointer of the type in which its buckets are made; see bucketWithEntry
	mu        sync.Mutex
	states    []*bucketState // the oldest first
}

// maxFamilyStates is how many states a family remembers. Buckets of one factory have the same limits, or two kinds of
// limits while a program reconfigures them.
const maxFamilyStates = 4

// newBucketFamily returns a function that gives each bucket of a new family its first state, or invalid if that is not
// nil. container is a nil pointer of the type in which the buckets are made.
func newBucketFamily(l bucketLimits, invalid error, container any) (func() *bucketState, error) {
	if invalid != nil {
		return nil, invalid
	}
	if l.manual {
		return func() *bucketState { return newBucketState(l) }, nil // each has a time of its own
	}
	s := (&bucketFamily{container: container}).state(l)
	return func() *bucketState { return s }, nil
}

// state returns the shared state of buckets with those limits.
func (f *bucketFamily) state(l bucketLimits) *bucketState {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.states {
		if s.limits() == l {
			return s
		}
	}
	s := newBucketState(l)
	s.family = f
	if len(f.states) == maxFamilyStates {
		f.states = append(f.states[:0], f.states[1:]...)
	}
	f.states = append(f.states, shareable(s))
	return s
}

// shareable makes s a state of many buckets, and returns it. Buckets that are replenished by hand cannot share one:
// each has its own time.
func shareable(s *bucketState) *bucketState {
	closed := newBucketState(s.limits())
	closed.shared, closed.closed, closed.family = true, true, s.family
	s.shared, s.sharedClosed = true, closed
	return s
}

// container returns a nil pointer of the type in which the bucket was made, or nil if that is not known.
func (b *bucket) container() any {
	if s := b.state(); s != nil && s.family != nil {
		return s.family.container
	}
	return nil
}

// share gives a bucket the shared state of its family again. A line has just filled the bucket, so older leases are
// worth nothing, and lows and refunds need not be kept. share does nothing for a bucket that needs its own state: for
// waiters, a timer, or counts that do not fit.
func (b *bucket) share() {
	s := b.state()
	granted, failed := s.granted+int64(b.granted), s.failed+int64(b.failed)
	if s.family == nil || s.closed || s.timer != nil || s.spinning || !s.queue.empty() || s.idleAt != 0 ||
		granted != int64(uint32(granted)) || failed != int64(uint32(failed)) {
		return
	}
	b.granted, b.failed = uint32(granted), uint32(failed)
	b.current.Store(s.family.state(s.limits()))
}
