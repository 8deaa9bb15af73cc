package limiter

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
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
// been idle for IdleTimeout. A limiter is never closed while a caller uses it.
//
// If a limiter is a [Replenisher] whose AutoReplenishing returns false, TryReplenish is called every 100 ms. A custom
// limiter is asked once, when it is made. While there are partitions, one goroutine at a time does the housekeeping. It
// works in small steps, so that it holds up no caller, and after a search for idle partitions it waits twenty times as
// long as the search took.
//
// Custom limiters are called with no lock held. If a custom limiter is no [Idler], it counts as idle while none of its
// leases is held, from its last use on. If IdleDuration, TryReplenish or Close panics or takes longer than 100 ms (1 ms
// for the 10 s after such a call), housekeeping goes on without it; a slow call is not repeated before it has returned.
// Panics and slow calls are logged with [log/slog.Default], each at most once in 10 s for each of the three methods.
// While 1000 calls of Close have not returned, no partition with a custom limiter is forgotten.
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
	anyClocked atomic.Bool // a limiter has been made that needs the clock
	rejections heavyhitters.Counter[K]

	// Every call reads the fields before the gap, and new keys write to those after it: they are in different cache
	// lines.
	_            [8]uint64
	count        atomic.Int64  // partitions, and those being made
	manualCount  atomic.Int64  // how many of them need calls of TryReplenish
	recency      atomic.Uint32 // see usesPerEpoch
	sampleShard  atomic.Uint32 // where the next sample begins
	noScanBefore atomic.Int64  // until then, new keys only sample
	pausedUntil  atomic.Int64  // the search for idle partitions pauses until then
	waited       atomic.Int64  // nanoseconds that this search has waited for slow limiters
	janitor      janitor
	applying     sync.Mutex

	onIdle, onReplenish, onClose hook
}

// A shard has a part of the partitions, with a lock and a cache line of its own.
type shard[K comparable] struct {
	mu         sync.Mutex
	table      table[K]
	creations  *creation[K] // of all keys whose limiter is being made
	reusable   *creation[K] // one that was used and can be used again, or nil
	sweepAt    int64        // no partition has to be forgotten before that moment
	sampleFrom int          // the chain that the next sample begins with
	_          [1]uint64
}

// NewPartitioned returns a limiter that calls partition once for each request, to pick the limiter of its resource.
// partition must be safe for concurrent use. If o is nil, the options are the defaults. The error is a
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
	}
	p.makeShards(shardCount(options.ExpectedPartitions))
	p.set(options)
	p.janitor.work = p.housekeep
	p.onIdle.init("limiter: IdleDuration")
	p.onReplenish.init("limiter: TryReplenish")
	p.onClose.init("limiter: Close")
	p.noScanBefore.Store(unknown)
	p.pausedUntil.Store(unknown)
	return p, nil
}

// makeShards makes n shards without partitions.
func (p *PartitionedLimiter[R, K]) makeShards(n int) {
	p.shards = make([]shard[K], n)
	for i := range p.shards {
		p.shards[i].sweepAt = never
	}
}

// set stores the options, with their defaults.
func (p *PartitionedLimiter[R, K]) set(o PartitionedOptions) {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	p.idle.Store(int64(o.IdleTimeout))
	p.max.Store(int64(o.MaxPartitions))
}

const leastShards = 128

// shardCount returns the number of shards, a power of two. There are many more than processors, because waiting for a
// lock costs a hundred times as much as taking a free one, but not more than partitions that are expected.
func shardCount(expected int) int {
	most := leastShards
	for most < 64*runtime.GOMAXPROCS(0) && most < 1024 {
		most *= 2
	}
	if expected == 0 {
		return most
	}
	n := 1
	for n < expected && n < most {
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

// acquire is TryAcquire and Acquire. If the key has a clocked limiter, it takes no other lock than the limiter's; see
// the rules of [entry].
func (p *PartitionedLimiter[R, K]) acquire(ctx context.Context, part Partition[K], n int, wait bool) (Lease, error) {
	// Reading the clock makes the processor wait for all loads that it has begun. With many keys these are cache
	// misses, so the clock is read before them.
	now := int64(unknown)
	if p.anyClocked.Load() {
		now = moment()
	}
	hash := p.hash(part.Key)
	s := p.shard(hash)
	e := s.table.find(hash, part.Key)
	pinned := false
	if e == nil {
		if err := argumentError(ctx, n, wait); err != nil {
			return Lease{}, err
		}
		var lease Lease
		var err error
		if e, lease, err = p.findOrMake(ctx, s, hash, part, now, false); e == nil {
			if p.counts(lease, err) {
				p.rejections.Add(part.Key, hash)
			}
			return lease, err
		}
		pinned = !e.clocked()
	}
	if now != unknown && p.change.Load() == nil {
		p.use(e)
		if lease, err, ok := e.askClocked(ctx, now, n, wait); ok && err != ErrClosed { //nolint:errorlint // acquire returns it bare
			if p.counts(lease, err) {
				p.rejections.Add(part.Key, hash)
			}
			return lease, err
		}
	}
	if !pinned {
		if err := argumentError(ctx, n, wait); err != nil {
			return Lease{}, err
		}
		if !e.pin() {
			var lease Lease
			var err error
			if e, lease, err = p.findOrMake(ctx, s, hash, part, now, true); e == nil {
				if p.counts(lease, err) {
					p.rejections.Add(part.Key, hash)
				}
				return lease, err
			}
		}
	}
	defer e.unpin()
	p.use(e)
	if a := p.change.Load(); a != nil {
		_ = a.apply(e.key, untracked(e.limiter()))
		now = unknown
	}
	if now != unknown {
		if lease, err, ok := e.askClocked(ctx, now, n, wait); ok {
			if p.counts(lease, err) {
				p.rejections.Add(part.Key, hash)
			}
			return lease, err
		}
	}
	lease, err := e.ask(ctx, n, wait)
	if p.counts(lease, err) {
		p.rejections.Add(part.Key, hash)
	}
	return lease, err
}

// Statistics returns the figures of the resource's limiter. If there is none, or if it is no [StatisticsProvider], they
// are zero, and no partition is made. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Statistics(resource R) (Statistics, error) {
	e, err := p.pinned(p.partition(resource).Key)
	if e == nil {
		return Statistics{}, err
	}
	defer e.unpin()
	if sp, ok := untracked(e.limiter()).(StatisticsProvider); ok {
		return sp.Statistics(), nil
	}
	return Statistics{}, nil
}

// Limits returns the limits in force of the resource's limiter. If there is no such limiter, or if it has no limits, they are
// zero, and no partition is made. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Limits(resource R) (l rate.Limits, err error) {
	e, err := p.pinned(p.partition(resource).Key)
	if e == nil {
		return l, err
	}
	defer e.unpin()
	if c, ok := untracked(e.limiter()).(interface{ Limits() rate.Limits }); ok {
		l = c.Limits()
	}
	return l, nil
}

// pinned returns the partition of a key, pinned, or nil if there is none. The error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) pinned(key K) (*entry[K], error) {
	hash := p.hash(key)
	s := p.shard(hash)
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.closed.Load() {
		return nil, ErrClosed
	}
	e := s.table.find(hash, key)
	if e != nil {
		e.pins.Add(1) // rule 2 of entry
	}
	return e, nil
}

// Reconfigure changes the options; a zero field gets its default. Partitions above a lower MaxPartitions stay as long
// as they are in use. To change the limiters of the partitions, see [PartitionedLimiter.Apply]. The error is a
// [weir.OptionsError].
func (p *PartitionedLimiter[R, K]) Reconfigure(o PartitionedOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p.set(o)
	now := moment()
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		if s.table.n > 0 {
			s.sweepAt = min(s.sweepAt, now)
		}
		s.mu.Unlock()
	}
	if p.count.Load() > 0 && !p.closed.Load() {
		p.janitor.schedule(max(now, p.pauseEnds(now)))
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
	errs := []error{p.janitor.stop()}
	p.closeFrom(0, nil, &errs)
	return errors.Join(errs...)
}

// closeFrom closes the limiters of the entries in the chain all, which were taken out of a shard, and then the limiters
// of the given shard and the shards after it. If a limiter's Close panics, the others are closed all the same.
func (p *PartitionedLimiter[R, K]) closeFrom(shard int, all *entry[K], errs *[]error) {
	complete := false
	defer func() {
		if !complete {
			p.closeFrom(shard, all, errs)
		}
	}()
	for {
		for all != nil {
			e := all
			all = e.next.Load()
			p.uncount(e)
			*errs = append(*errs, closeLimiter(e.limiter()))
		}
		if shard == len(p.shards) {
			complete = true
			return
		}
		s := &p.shards[shard]
		shard++
		s.mu.Lock()
		all = s.table.clear()
		s.mu.Unlock()
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

// useFixedHash makes p the same in each process, on machines with any number of processors.
func (p *PartitionedLimiter[R, K]) useFixedHash() {
	p.fixed = true
	p.makeShards(leastShards)
}

// shard returns the shard for a hash. The table of the shard uses the lower bits of the hash.
func (p *PartitionedLimiter[R, K]) shard(hash uint64) *shard[K] {
	return &p.shards[hash>>32&uint64(len(p.shards)-1)]
}
