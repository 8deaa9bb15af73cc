package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"iter"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
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
// been idle for IdleTimeout, or up to a quarter of that longer: see IdleDuration of each. A limiter is never closed while a caller
// uses it.
//
// While there are partitions, one goroutine at a time does the housekeeping. It works in small steps, so that it holds up no
// caller, and after a search for idle partitions it waits twenty times as long as the search took.
//
// Custom limiters are called with no lock held. One that is no Idler of package custom is never idle: its partition stays until
// Close. Housekeeping calls their IdleDuration and Close, drops the error of Close, and logs a panic there with
// [log/slog.Default]. A new key that searches for room calls them, too, and then a panic is up to its caller. A call that does
// not return holds up the new key, or the housekeeping. IdleDuration must not ask the PartitionedLimiter for permits.
//
// The zero PartitionedLimiter is not usable; make one with [NewPartitioned] or [NewPartitionedByKey].
type PartitionedLimiter[R any, K comparable] struct {
	partition  func(R) Partition[K]
	each       Factory[K] // of all keys, or nil
	keys       partitions[K]
	rejections heavyhitters.Counter[K]
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
	p := &PartitionedLimiter[R, K]{partition: partition, each: each}
	p.keys.seed, p.keys.fixed = maphash.MakeSeed(), deterministic.Runs.Load() > 0
	p.keys.shards = make([]shard[K], shardCount(options.ExpectedPartitions))
	p.keys.set(options)
	return p, nil
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
	hash := p.keys.hash(part.Key)
	var lease Lease
	err := ErrClosed
	if e := p.keys.shard(hash).find(hash, part.Key); e != nil && e.hasBucket() && p.keys.change.Load() == nil {
		lease, err = e.acquire(ctx, now, n, wait)
	}
	if err == ErrClosed { //nolint:errorlint // acquire returns it bare
		lease, err = p.acquireSlow(ctx, part, hash, now, n, wait)
	}
	if !lease.Acquired() && err == nil && p.rejections.Counting() {
		p.rejections.Add(part.Key, hash)
	}
	return lease, err
}

// acquireSlow is acquire unless the key has a bucket that is there and unchanged.
func (p *PartitionedLimiter[R, K]) acquireSlow(
	ctx context.Context, part Partition[K], hash uint64, now int64, n int, wait bool,
) (lease Lease, err error) {
	if err := argumentError(ctx, n, wait); err != nil {
		return Lease{}, err
	}
	there, err := p.keys.withPartition(ctx, part, hash, now, true, func(found partition[K]) (err error) {
		lease, err = found.ask(ctx, n, wait)
		return err
	})
	if !there && err == nil {
		return rejected(0, partitionLimit), nil
	}
	return lease, err
}

// look calls ask for the limiter of a key, and reports whether there is one.
func (p *PartitionedLimiter[R, K]) look(ctx context.Context, part Partition[K], ask func(l Limiter) error) (there bool, err error) {
	return p.keys.withPartition(ctx, part, p.keys.hash(part.Key), moment(), false, func(found partition[K]) error {
		return ask(found.limiter())
	})
}

// lookOrMake calls ask for the limiter of a key. If there is none, it asks one that Partition.New makes, and closes it.
func (p *PartitionedLimiter[R, K]) lookOrMake(ctx context.Context, part Partition[K], ask func(l Limiter) error) error {
	there, err := p.look(ctx, part, ask)
	if there || err != nil {
		return err
	}
	l, err := part.make()
	if err != nil {
		return err
	}
	defer func() { _ = closeLimiter(l) }()
	return ask(l)
}

// Peek returns what TryAcquire(ctx, resource, n) would return now; see [Peeker]. It calls the partition function once.
//
// If the key has no partition, Peek calls Partition.New, asks that limiter and closes it, and makes no partition, whether or not
// there is room for one.
//
// The error is [errors.ErrUnsupported] if the limiter is a custom one and no [Peeker].
func (p *PartitionedLimiter[R, K]) Peek(ctx context.Context, resource R, n int) (Lease, error) {
	return p.peek(ctx, p.partition(resource), n)
}

// PeekKey is [PartitionedLimiter.Peek] for a key instead of a resource.
//
// If the key has no partition, PeekKey must know which limiter it would get. It does if the PartitionedLimiter was made
// with [NewPartitionedByKey], or if resources are keys and the partition function returns the key unchanged. Otherwise,
// the error is [errors.ErrUnsupported].
func (p *PartitionedLimiter[R, K]) PeekKey(ctx context.Context, key K, n int) (Lease, error) {
	if p.each != nil {
		return p.peek(ctx, Partition[K]{Key: key, New: p.each}, n)
	}
	if partition, ok := any(p.partition).(func(K) Partition[K]); ok {
		if part := partition(key); part.Key == key {
			return p.peek(ctx, part, n)
		}
	}
	unknown := func(K) (Limiter, error) {
		return nil, fmt.Errorf("PeekKey does not know it: %w", errors.ErrUnsupported)
	}
	return p.peek(ctx, Partition[K]{Key: key, New: unknown}, n)
}

// peek is Peek.
func (p *PartitionedLimiter[R, K]) peek(ctx context.Context, part Partition[K], n int) (lease Lease, err error) {
	if err := argumentError(ctx, n, false); err != nil {
		return Lease{}, err
	}
	err = p.lookOrMake(ctx, part, func(l Limiter) (err error) {
		lease, err = peekLimiter(ctx, l, n)
		return err
	})
	return lease, err
}

// Charge takes n permits of the resource's limiter, even if fewer are free; see [Charger]. It calls the partition
// function once.
//
// If the key has no partition and n is positive, Charge makes one, as TryAcquire does. If there is no room for it, the
// error is [ErrPartitionLimit]. If n is 0 or negative, Charge makes no partition: it calls Partition.New, returns the
// level of that limiter and closes it, whether or not there is room for a partition.
//
// The error is [errors.ErrUnsupported] if the limiter lends its permits, or is a custom limiter that is not a [Charger].
func (p *PartitionedLimiter[R, K]) Charge(ctx context.Context, resource R, n int) (level Level, err error) {
	part := p.partition(resource)
	if ctx.Err() != nil {
		return Level{}, ctxerr.Of(ctx)
	}
	charge := func(l Limiter) (err error) {
		level, err = chargeLimiter(ctx, l, n)
		return err
	}
	if n <= 0 {
		err = p.lookOrMake(ctx, part, charge)
		return level, err
	}
	there, err := p.keys.withPartition(ctx, part, p.keys.hash(part.Key), moment(), true, func(found partition[K]) error {
		return charge(found.toTake())
	})
	if !there && err == nil {
		err = fmt.Errorf("%w: %d partitions are in use", ErrPartitionLimit, p.keys.max.Load())
	}
	return level, err
}

// Statistics returns the figures of the resource's limiter. If there is none, or if it is no [StatisticsProvider], they
// are zero, and no partition is made. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Statistics(resource R) (s Statistics, err error) {
	_, err = p.look(context.Background(), p.partition(resource), func(l Limiter) error {
		if sp, ok := l.(StatisticsProvider); ok {
			s = sp.Statistics()
		}
		return nil
	})
	return s, err
}

// Limits returns the limits in force of the resource's limiter. If there is no such limiter, or if it has no limits, they are
// zero, and no partition is made. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Limits(resource R) (limits rate.Limits, err error) {
	_, err = p.look(context.Background(), p.partition(resource), func(l Limiter) error {
		if c, ok := l.(interface{ Limits() rate.Limits }); ok {
			limits = c.Limits()
		}
		return nil
	})
	return limits, err
}

// All yields the partitions with the limiters that their factory made, in no order. It waits for partitions that are
// being made, so after a change of the factory it yields every limiter that the old factory made. A partition is not
// forgotten while it is yielded. Partitions that are made while All runs may be yielded or not.
func (p *PartitionedLimiter[R, K]) All() iter.Seq2[K, Limiter] {
	return func(yield func(K, Limiter) bool) {
		for i := range p.keys.shards {
			if !p.keys.shards[i].yield(yield) {
				return
			}
		}
	}
}

// Apply calls change for the limiter of every partition, as [PartitionedLimiter.All] yields them. The first error ends
// it and is returned. While Apply runs, a call for a key calls change for that key's limiter first, unless change is
// running for it. So what change does is in force for every key from the beginning of Apply on, however long it takes
// to go through all of them:
//
//	err := perUser.Apply(func(_ string, l limiter.Limiter) error {
//		return l.(*limiter.TokenBucket).Reconfigure(raised)
//	})
//
// New partitions are made by their factory, so change the factory before the call of Apply.
//
// change can be called several times for a limiter, one call at a time, by any goroutine that calls a method of p, but not after
// Apply has returned. If a call for a key calls change, the error of change is ignored. change must not ask p for
// permits of other keys, and must not call Apply: calls of Apply wait for each other.
func (p *PartitionedLimiter[R, K]) Apply(change func(key K, l Limiter) error) error {
	if change == nil {
		return optionsError("change", nil, "must not be nil")
	}
	p.keys.applying.Lock()
	defer p.keys.applying.Unlock()
	a := &applyCall[K]{change: change}
	p.keys.change.Store(a)
	defer a.end()
	defer p.keys.change.Store(nil)
	for key, l := range p.All() {
		if err := a.apply(key, l, true); err != nil {
			return err
		}
	}
	return nil
}

// Reconfigure changes the options; a zero field gets its default. Partitions above a lower MaxPartitions stay as long
// as they are in use. To change the limiters of the partitions, see [PartitionedLimiter.Apply]. The error is a
// [weir.OptionsError].
func (p *PartitionedLimiter[R, K]) Reconfigure(o PartitionedOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p.keys.set(o)
	p.keys.sweepSooner(moment())
	return nil
}

// Len returns the number of partitions, including partitions that are being made.
func (p *PartitionedLimiter[R, K]) Len() int { return int(p.keys.count.Load()) }

// Close closes every partition's limiter, and returns their errors; a panic in one is a pipeline.PanicError. The Close of each
// limiter answers its waiters; later calls return [ErrClosed]. Close can be called again, and then returns nil.
func (p *PartitionedLimiter[R, K]) Close() error {
	p.rejections.Close()
	return p.keys.close()
}

// KeyRejections are the rejections of one key. While up to 1024 keys are rejected, and up to 100,000 calls a second,
// Rejections is the true count and Error is 0.
//
// If there are more keys, they take turns in 1024 places by the Space-Saving algorithm of Metwally, Agrawal and El
// Abbadi. The true count is then from Rejections-Error to Rejections, and Error is at most a 1024th of all rejections.
// A key with more rejections than that is always among the places.
//
// If more than 100,000 calls a second are rejected, one in 8 is counted, drawn at random, with a weight of 8; from a
// million on, one in 64. Then the numbers are estimates: of n rejections, the standard deviation is √(7n) or √(63n),
// which for 10,000 rejections is 3 % or 8 %. A rejected call never waits for the counting of another one. If two meet,
// both can be counted for the key of the second.
type KeyRejections struct {
	Key        string // as [fmt.Sprint] writes the key; cut to 200 bytes, with "…" at the end if it was longer
	Rejections int64
	Error      int64
}

// TopRejected returns the n keys with the most rejected calls, the most first; fewer if fewer were rejected, and 1024 at
// most. Waiters that were rejected count, too. See [KeyRejections] for what the numbers mean.
//
// Counting begins with the first call, also if n is 0, and ends by itself a minute after the last one; the counts are then
// forgotten. While it counts, it takes about 60 kB more memory, and up to 1024 keys stay in memory after their
// partitions were forgotten. Keys that are strings are cut to 200 bytes there. After Close there are no counts.
func (p *PartitionedLimiter[R, K]) TopRejected(n int) []KeyRejections {
	top := p.rejections.Top(n)
	all := make([]KeyRejections, len(top))
	for i, c := range top {
		all[i] = KeyRejections{Key: c.Text(), Rejections: c.Count, Error: c.Error}
	}
	return all
}
