package limiter

import (
	"context"
	"errors"
	"hash/maphash"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/fixedhash"
	"github.com/weir-go/weir/internal/heavyhitters"
	"github.com/weir-go/weir/internal/validate"
	"github.com/weir-go/weir/rate"
)

// A Partitioned limiter picks a limiter by the resource: a request, a user, a tenant. It answers as a [Limiter] does.
type Partitioned[R any] interface {
	// TryAcquire takes n permits of the resource's limiter if they are free.
	TryAcquire(ctx context.Context, resource R, n int) (Lease, error)
	// Acquire takes n permits of the resource's limiter, and waits in its queue if there is room.
	Acquire(ctx context.Context, resource R, n int) (Lease, error)
}

// A Partition says to which partition a resource belongs.
type Partition[K comparable] struct {
	// Key names the partition.
	Key K
	// New makes the limiter of the partition. It must return a new one in each call, and the limiter is closed when the
	// partition is forgotten. New is called when the key has no partition, once for all concurrent callers, and also by
	// Peek and by Charge of 0 or less for such a key, which close the limiter at once. No lock that another key needs is
	// held meanwhile. New must not ask the same PartitionedLimiter for the same key: that call would wait for this one
	// until its context ends.
	New Factory[K]
}

// A PartitionedLimiter has a limiter for each key. It is made when the key is first used, and forgotten when it has
// been idle for IdleTimeout, or up to a quarter of that longer. A limiter is never closed while a caller uses it.
//
// While there are partitions, one goroutine at a time does the housekeeping. It works in small steps, so that it holds up no caller, and after a search for idle
// partitions it waits twenty times as long as the search took.
//
// Custom limiters are called with no lock held. One that is no Idler counts as idle while none of its leases is held, from its last use on.
// Housekeeping calls their IdleDuration and Close, and so does a new key that searches for room. A panic
// there is logged with [log/slog.Default], at most one in 10 s, and ends nothing else. If a call does not return, that new
// key waits for it, and the other custom limiters are no longer looked after.
//
// The zero PartitionedLimiter is not usable; make one with [NewPartitioned] or [NewPartitionedByKey].
type PartitionedLimiter[R any, K comparable] struct {
	partition  func(R) Partition[K]
	each       Factory[K]   // of all keys, or nil
	idle       atomic.Int64 // IdleTimeout
	max        atomic.Int64 // MaxPartitions
	seed       maphash.Seed
	fixed      bool // hash by package fixedhash, and not with seed
	shards     []shard[K]
	change     atomic.Pointer[applyCall[K]] // the running Apply, or nil
	closed     atomic.Bool
	rejections heavyhitters.Counter[K]

	// Every call reads the fields before the gap, and new keys write to those after it: they are in different cache
	// lines.
	_           [8]uint64
	count       atomic.Int64 // partitions, and those being made
	pausedUntil atomic.Int64 // new keys do not search for room before
	applying    sync.Mutex
	housekeeping
}

// NewPartitioned returns a limiter that calls partition once for each request, to pick the limiter of its resource.
// partition must be safe for concurrent use. If o is nil, the defaults apply. The error is a
// [weir.OptionsError].
func NewPartitioned[R any, K comparable](partition func(R) Partition[K], o *PartitionedOptions) (*PartitionedLimiter[R, K], error) {
	var problems validate.Problems
	if partition == nil {
		problems.Add("partition", nil, "must not be nil")
	}
	return makePartitioned(partition, nil, o, &problems)
}

// NewPartitionedByKey is [NewPartitioned] for the common case: key returns the key of a resource, and one factory makes
// the limiters of all keys. key and each must be safe for concurrent use. The error is a [weir.OptionsError].
func NewPartitionedByKey[R any, K comparable](key func(R) K, each Factory[K], o *PartitionedOptions) (*PartitionedLimiter[R, K], error) {
	var problems validate.Problems
	if key == nil {
		problems.Add("key", nil, "must not be nil")
	}
	if each == nil {
		problems.Add("each", nil, "must not be nil")
	}
	partition := func(resource R) Partition[K] { return Partition[K]{Key: key(resource), New: each} }
	return makePartitioned(partition, each, o, &problems)
}

// makePartitioned returns a limiter if there are no problems with it.
func makePartitioned[R any, K comparable](
	partition func(R) Partition[K], each Factory[K], o *PartitionedOptions, problems *validate.Problems,
) (*PartitionedLimiter[R, K], error) {
	var options PartitionedOptions
	if o != nil {
		options = *o
	}
	options.validate(problems)
	if err := problems.Err("limiter"); err != nil {
		return nil, err
	}
	p := &PartitionedLimiter[R, K]{
		partition: partition,
		each:      each,
		seed:      maphash.MakeSeed(),
		shards:    make([]shard[K], shardCount(options.ExpectedPartitions)),
	}
	p.set(options)
	for _, moment := range []*atomic.Int64{&p.pausedUntil, &p.due, &p.logged} {
		moment.Store(unknown)
	}
	p.sweepAt = unknown
	return p, nil
}

// set stores the options, with their defaults.
func (p *PartitionedLimiter[R, K]) set(o PartitionedOptions) {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	p.idle.Store(int64(o.IdleTimeout))
	p.max.Store(int64(o.MaxPartitions))
}

// shardCount returns the number of shards, a power of two. There are many more than processors, because waiting for a
// lock costs a hundred times as much as taking a free one, but not more than partitions that are expected.
func shardCount(expected int) int {
	const most = 128
	n := 1
	for n < most && (n < expected || expected == 0) {
		n *= 2
	}
	return n
}

// TryAcquire takes n permits of the resource's limiter if they are free. If the limiter has to be made, it waits for
// that.
func (p *PartitionedLimiter[R, K]) TryAcquire(ctx context.Context, resource R, n int) (Lease, error) {
	return p.acquire(ctx, p.partition(resource), n, false)
}

// Acquire takes n permits of the resource's limiter, and waits in its queue if there is room.
func (p *PartitionedLimiter[R, K]) Acquire(ctx context.Context, resource R, n int) (Lease, error) {
	return p.acquire(ctx, p.partition(resource), n, true)
}

// acquire is TryAcquire and Acquire.
func (p *PartitionedLimiter[R, K]) acquire(ctx context.Context, part Partition[K], n int, wait bool) (Lease, error) {
	// Reading the clock makes the processor wait for all loads that it has begun. With many keys these are cache
	// misses, so the clock is read before them.
	now := moment()
	hash := p.hash(part.Key)
	s := p.shard(hash)
	var lease Lease
	err := ErrClosed
	if e, at := s.find(hash, part.Key); e != nil {
		at.use()
		if e.hasBucket() && p.change.Load() == nil {
			lease, err = e.acquire(ctx, now, n, wait)
		}
	}
	if err == ErrClosed { //nolint:errorlint // acquire returns it bare
		lease, err = p.acquireSlow(ctx, s, hash, part, now, n, wait)
	}
	if !lease.Acquired() && err == nil && p.rejections.Counting() {
		p.rejections.Add(part.Key, hash)
	}
	return lease, err
}

// acquireSlow is acquire unless the key has a bucket that is there and unchanged.
func (p *PartitionedLimiter[R, K]) acquireSlow(
	ctx context.Context, s *shard[K], hash uint64, part Partition[K], now int64, n int, wait bool,
) (lease Lease, err error) {
	if err := argumentError(ctx, n, wait); err != nil {
		return Lease{}, err
	}
	there, err := p.use(func() (partition[K], error) {
		return p.findOrMake(ctx, s, hash, part, now)
	}, func(found partition[K]) (err error) {
		if found.tracked != nil {
			lease, err = found.tracked.acquire(ctx, n, wait)
		} else {
			lease, err = found.acquire(ctx, now, n, wait)
		}
		return err
	})
	if !there && err == nil {
		return rejected(0, partitionLimit), nil
	}
	return lease, err
}

// use calls ask for the partition that find returns, pinned, and reports whether there is one. A bucket can be forgotten, and is
// closed then, before it is asked; then use looks for the key again. If it finds the same bucket, the program has closed it.
func (p *PartitionedLimiter[R, K]) use(
	find func() (partition[K], error), ask func(found partition[K]) error,
) (there bool, err error) {
	for last := (*entry[K])(nil); ; {
		found, err := find()
		if err != nil || found.entry == nil {
			return false, err
		}
		err = p.usePinned(found, ask)
		if err != ErrClosed || found.tracked != nil || found.entry == last { //nolint:errorlint // a bucket returns it bare
			return true, err
		}
		last = found.entry
	}
}

func (p *PartitionedLimiter[R, K]) usePinned(found partition[K], ask func(found partition[K]) error) error {
	defer found.unpin()
	p.applyTo(found)
	return ask(found)
}

// Statistics returns the figures of the resource's limiter. If there is none, or if it is no [StatisticsProvider], they
// are zero, and no partition is made. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Statistics(resource R) (Statistics, error) {
	found, err := p.pinned(p.partition(resource).Key)
	if found.entry == nil {
		return Statistics{}, err
	}
	defer found.unpin()
	if sp, ok := found.limiter().(StatisticsProvider); ok {
		return sp.Statistics(), nil
	}
	return Statistics{}, nil
}

// Limits returns the limits in force of the resource's limiter. If there is no such limiter, or if it has no limits, they are
// zero, and no partition is made. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Limits(resource R) (l rate.Limits, err error) {
	found, err := p.pinned(p.partition(resource).Key)
	if found.entry == nil {
		return l, err
	}
	defer found.unpin()
	if c, ok := found.limiter().(interface{ Limits() rate.Limits }); ok {
		l = c.Limits()
	}
	return l, nil
}

// pinned returns the partition of a key, pinned if its limiter is tracked, or a zero one. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) pinned(key K) (partition[K], error) {
	hash := p.hash(key)
	s := p.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.closed.Load() {
		return partition[K]{}, ErrClosed
	}
	return s.pin(hash, key), nil
}

// Reconfigure changes the options; a zero field gets its default. Partitions above a lower MaxPartitions stay as long
// as they are in use. To change the limiters of the partitions, see [PartitionedLimiter.Apply]. The error is a
// [weir.OptionsError].
func (p *PartitionedLimiter[R, K]) Reconfigure(o PartitionedOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p.set(o)
	if p.count.Load() > 0 {
		p.schedule(moment())
	}
	return nil
}

// Len returns the number of partitions, including partitions that are being made.
func (p *PartitionedLimiter[R, K]) Len() int { return int(p.count.Load()) }

// Close closes every partition's limiter. It returns their errors, and the first error of a partition that was
// forgotten before. The Close of each limiter answers its waiters; later calls return [ErrClosed]. Close can be called
// again, and then returns nil.
func (p *PartitionedLimiter[R, K]) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	p.rejections.Close()
	var errs []error
	if first := p.closing.Load(); first != nil {
		errs = append(errs, *first)
	}
	var all []partition[K]
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		all = append(all, s.clear()...)
		s.mu.Unlock()
	}
	p.closeAll(all, &errs)
	return errors.Join(errs...)
}

// closeAll closes the limiters of all. If one panics, the others are closed all the same.
func (p *PartitionedLimiter[R, K]) closeAll(all []partition[K], errs *[]error) {
	defer func() {
		if len(all) > 0 {
			p.closeAll(all, errs)
		}
	}()
	for len(all) > 0 {
		out := all[0]
		all = all[1:]
		p.count.Add(-1)
		*errs = append(*errs, closeLimiter(out.limiter()))
	}
}

// hash returns the hash of a key.
func (p *PartitionedLimiter[R, K]) hash(key K) uint64 {
	if p.fixed {
		if text, ok := any(key).(string); ok {
			return fixedhash.String(text)
		}
	}
	return maphash.Comparable(p.seed, key)
}

func init() {
	fixedhash.Use = func(limiter any) {
		if p, ok := limiter.(interface{ useFixedHash() }); ok {
			p.useFixedHash()
		}
	}
}

// useFixedHash makes p the same in each process.
func (p *PartitionedLimiter[R, K]) useFixedHash() { p.fixed = true }

// shard returns the shard for a hash. The table of the shard uses the lower bits of the hash.
func (p *PartitionedLimiter[R, K]) shard(hash uint64) *shard[K] {
	return &p.shards[hash>>32&uint64(len(p.shards)-1)]
}
