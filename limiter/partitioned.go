package limiter

import (
	"context"
	"errors"
	"hash/maphash"
	"runtime"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir/internal/validate"
)

// A Partitioned limiter picks the limiter by what is asked for: a request, a
// user, a tenant. It answers as a [Limiter] does.
type Partitioned[R any] interface {
	// TryAcquire takes n permits of the resource's limiter if they are there now.
	TryAcquire(ctx context.Context, resource R, n int) (Lease, error)
	// Acquire takes n permits of the resource's limiter, waiting in its queue.
	Acquire(ctx context.Context, resource R, n int) (Lease, error)
}

// A Factory makes the limiter of one partition. Make the factory once, and not
// anew in each call of the partition function: that costs allocations, and
// buckets of one factory share what they have in common.
type Factory[K comparable] func(key K) (Limiter, error)

// A Partition says to which partition a resource belongs.
type Partition[K comparable] struct {
	// Key names the partition.
	Key K
	// New makes its limiter: a new one in each call, which is closed when the
	// partition is forgotten. It is called when the key has no partition, once
	// for all concurrent callers, outside any lock that another key waits for. It
	// must not ask the same PartitionedLimiter for the same key: that call would
	// wait for this one until its context ends.
	New Factory[K]
}

// PartitionedOptions are the options of a [PartitionedLimiter]. The zero value
// keeps any number of partitions, each until it has been idle for 10 seconds.
type PartitionedOptions struct {
	// IdleTimeout: a partition whose limiter has been idle for longer is closed
	// and forgotten; 0: 10 s. See [Idler].
	IdleTimeout time.Duration `json:"idle_timeout,omitempty" yaml:"idle_timeout,omitempty"`
	// MaxPartitions bounds how many partitions there are; 0: no bound. Where keys
	// come from outside, set it. A new key beyond it takes the place of the least
	// recently used partition that is idle; where all are in use it is rejected,
	// so a flood of keys never pushes out one that is being throttled. Above 64
	// partitions the stalest of a sample of 8 goes, and during a flood a new key may
	// be rejected although one of many partitions is idle: a new key must not cost a
	// look at each of them.
	MaxPartitions int `json:"max_partitions,omitempty" yaml:"max_partitions,omitempty"`
}

const defaultIdleTimeout = 10 * time.Second

// Validate returns a [weir.OptionsError] with everything that is wrong with o, or nil.
func (o PartitionedOptions) Validate() error {
	var p validate.Problems
	o.validate(&p)
	return p.Err("limiter")
}

func (o PartitionedOptions) validate(p *validate.Problems) {
	p.NotNegative("IdleTimeout", o.IdleTimeout)
	p.AtLeast("MaxPartitions", o.MaxPartitions, 0)
}

// A PartitionedLimiter has a limiter for each key, made when the key is first
// seen and forgotten when it has been idle for long. A limiter that was found is
// never closed under the caller: forgetting and using it exclude each other.
//
// If a limiter has TryReplenish and, when it is made, does not replenish by itself,
// TryReplenish is called every 100 ms. One goroutine at a time does the housekeeping, for as long as
// there are partitions; it works in small steps, so it stalls no caller, and after a
// search for idle partitions it waits twenty times as long as the search took.
//
// Custom limiters are called with no lock held. One that is not an [Idler] counts as
// idle from its last use on, once its leases are released. If IdleDuration, TryReplenish
// or Close panics or takes longer than 100 ms (1 ms for the 10 s after such a call),
// housekeeping goes on without it; a slow call is not repeated before it has returned.
// Both are logged with [log/slog.Default], each at most once in 10 s for each of the three
// methods. While 1000 calls of Close have not returned, no partition with a custom limiter
// is forgotten.
//
// The zero PartitionedLimiter is not usable; make one with [NewPartitioned].
type PartitionedLimiter[R any, K comparable] struct {
	partition  func(R) Partition[K]
	idle       atomic.Int64 // IdleTimeout
	max        atomic.Int64 // MaxPartitions
	seed       maphash.Seed
	shards     []shard[K]
	change     atomic.Pointer[applyCall[K]] // that runs, or nil
	closed     atomic.Bool
	anyClocked atomic.Bool // there have been limiters that need the clock

	_            [8]uint64     // what every call reads is in no cache line that new keys write to
	count        atomic.Int64  // partitions, and those being made
	manualCount  atomic.Int64  // of them, how many are to be replenished
	recency      atomic.Uint32 // see usesPerEpoch
	sampleShard  atomic.Uint32 // where to look for room next
	noScanBefore atomic.Int64  // until then, a new key looks for room in a few partitions only
	pausedUntil  atomic.Int64  // housekeeping rests until that moment
	waited       atomic.Int64  // for how long this housekeeping has waited for slow limiters
	janitor      janitor
	applying     sync.Mutex

	onIdle, onReplenish, onClose hook
}

// A shard is a part of the partitions with a lock of its own, in a cache line of
// its own.
type shard[K comparable] struct {
	mu         sync.Mutex
	table      table[K]
	making     *making[K] // a list
	reusable   *making[K] // one that is used again, or nil
	sweepAt    int64      // no partition is to be forgotten before that moment
	sampleFrom int        // the chain that the next sample begins with
	_          [1]uint64
}

// NewPartitioned returns a limiter of which partition picks the limiter for a resource. partition is called once in
// every call, by many goroutines at once. If o is nil, the options are the defaults. The error is a
// [weir.OptionsError].
func NewPartitioned[R any, K comparable](partition func(R) Partition[K], o *PartitionedOptions) (*PartitionedLimiter[R, K], error) {
	var options PartitionedOptions
	if o != nil {
		options = *o
	}
	var problems validate.Problems
	if partition == nil {
		problems.Add("partition", nil, "must not be nil")
	}
	options.validate(&problems)
	if err := problems.Err("limiter"); err != nil {
		return nil, err
	}
	p := &PartitionedLimiter[R, K]{
		partition: partition,
		seed:      maphash.MakeSeed(),
		shards:    make([]shard[K], shardCount()),
	}
	for i := range p.shards {
		p.shards[i].sweepAt = never
	}
	p.set(options)
	p.janitor.work = p.housekeep
	p.onIdle.init("limiter: IdleDuration")
	p.onReplenish.init("limiter: TryReplenish")
	p.onClose.init("limiter: Close")
	p.noScanBefore.Store(unknown)
	p.pausedUntil.Store(unknown)
	return p, nil
}

func (p *PartitionedLimiter[R, K]) set(o PartitionedOptions) {
	if o.IdleTimeout == 0 {
		o.IdleTimeout = defaultIdleTimeout
	}
	p.idle.Store(int64(o.IdleTimeout))
	p.max.Store(int64(o.MaxPartitions))
}

// shardCount is a power of two, and enough that the processors rarely meet: a
// lock that is waited for costs a hundred times one that is free.
func shardCount() int {
	n := 128
	for n < 64*runtime.GOMAXPROCS(0) && n < 1024 {
		n *= 2
	}
	return n
}

// TryAcquire takes n permits of the resource's limiter if they are there now.
// Where the limiter has to be made first, that is waited for.
func (p *PartitionedLimiter[R, K]) TryAcquire(ctx context.Context, resource R, n int) (Lease, error) {
	return p.acquire(ctx, p.partition(resource), n, false)
}

// Acquire takes n permits of the resource's limiter, waiting in its queue.
func (p *PartitionedLimiter[R, K]) Acquire(ctx context.Context, resource R, n int) (Lease, error) {
	return p.acquire(ctx, p.partition(resource), n, true)
}

// acquire takes no lock but the limiter's where the key has a limiter of ours that
// goes by the clock.
func (p *PartitionedLimiter[R, K]) acquire(ctx context.Context, part Partition[K], n int, wait bool) (Lease, error) {
	// Reading the clock makes the processor wait for all it has begun. With many
	// keys that is memory, so the clock is read before any of it is asked for.
	now := int64(unknown)
	if p.anyClocked.Load() {
		now = moment()
	}
	hash := maphash.Comparable(p.seed, part.Key)
	s := p.shard(hash)
	e := s.table.find(hash, part.Key)
	pinned := false
	if e == nil {
		if err := checkArguments(ctx, n, wait); err != nil {
			return Lease{}, err
		}
		var lease Lease
		var err error
		if e, lease, err = p.findOrMake(ctx, s, hash, part, now, false); e == nil {
			return lease, err
		}
		pinned = !e.clocked()
	}
	if now != unknown && p.change.Load() == nil {
		p.use(e)
		if lease, err, ours := e.askClocked(ctx, now, n, wait); ours && err != ErrClosed { //nolint:errorlint // ours return it bare
			return lease, err
		}
	}
	if !pinned {
		if err := checkArguments(ctx, n, wait); err != nil {
			return Lease{}, err
		}
		if !e.pin() {
			var lease Lease
			var err error
			if e, lease, err = p.findOrMake(ctx, s, hash, part, now, true); e == nil {
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
		if lease, err, ours := e.askClocked(ctx, now, n, wait); ours {
			return lease, err
		}
	}
	if wait {
		return e.limiter().Acquire(ctx, n)
	}
	return e.limiter().TryAcquire(ctx, n)
}

// checkArguments is what a limiter checks before it looks at its permits.
func checkArguments(ctx context.Context, n int, wait bool) error {
	done := ctx.Err() != nil
	switch {
	case done && (wait || n >= 0):
		return contextError(ctx)
	case n < 0:
		return permitCountError(n, 0)
	}
	return nil
}

// Statistics returns the figures of the resource's limiter. They are zero, and no
// partition is made, if there is none or if it is no [StatisticsProvider]. The
// error is [ErrClosed].
func (p *PartitionedLimiter[R, K]) Statistics(resource R) (Statistics, error) {
	key := p.partition(resource).Key
	hash := maphash.Comparable(p.seed, key)
	s := p.shard(hash)
	s.mu.Lock()
	if p.closed.Load() {
		s.mu.Unlock()
		return Statistics{}, ErrClosed
	}
	e := s.table.find(hash, key)
	if e == nil {
		s.mu.Unlock()
		return Statistics{}, nil
	}
	e.pins.Add(1)
	s.mu.Unlock()
	defer e.unpin()
	if sp, ok := untracked(e.limiter()).(StatisticsProvider); ok {
		return sp.Statistics(), nil
	}
	return Statistics{}, nil
}

// Len is how many partitions there are, those that are being made included.
func (p *PartitionedLimiter[R, K]) Len() int { return int(p.count.Load()) }

// Close closes every partition's limiter and returns their errors, with the first
// one from a partition that was forgotten before. Who waits in a limiter comes
// back as that limiter has it; later calls return [ErrClosed]. It may be called
// again, and returns nil then.
func (p *PartitionedLimiter[R, K]) Close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	errs := []error{p.janitor.stop()}
	p.closeFrom(0, nil, &errs)
	return errors.Join(errs...)
}

// closeFrom closes all, which were taken out of a shard, and then those of the shards from that one on. It
// goes on with the rest if a limiter's Close panics.
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

func (p *PartitionedLimiter[R, K]) shard(hash uint64) *shard[K] {
	return &p.shards[hash>>32&uint64(len(p.shards)-1)]
}
