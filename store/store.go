package store

import (
	"context"
	"hash/maphash"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/eventqueue"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
)

// A Store makes limiters whose state is in a [backend.Backend]. Packages weirredis and weirpostgres
// have a New each that returns one. It is safe for use by many goroutines; one Store for a
// process is usual. Making a limiter asks the store nothing, so a program starts while the
// store is away.
//
// Limiters are known by their names: all instances that have one of the same name, kind
// and store share it. Reconfigure sets the limits for all. So does the first use of a
// limiter, unless newer limits are in force; see LimiterOptions.Generation.
type Store struct {
	backend backend.Backend
	o       Options
	shards  shardTable
	count   counters
	events  *eventqueue.Queue[Event]

	ctx        context.Context // ends with Close
	cancel     context.CancelFunc
	goroutines sync.WaitGroup // goroutines that end soon after ctx

	renewer  leaseRenewer
	returner blockReturner

	interruptible bool          // the backend is
	inFlight      atomic.Int64  // what is under way beside the lanes
	repairSlots   chan struct{} // has room for as many as may go on at once

	idleWaiter atomic.Pointer[chan struct{}] // not nil: Close waits for what is under way

	closed chan struct{} // closed when Close is through

	// Locks are taken in this order: that of a cell, this, that of a core. While one of the
	// others is held, none is taken.

	mu            sync.Mutex
	cores         map[string][]*core // by name; nil: the store is being closed
	closing       bool               // no goroutine is to be begun any more
	listenStarted bool               // somebody does, or has found that it cannot be done
	listening     atomic.Bool        // notices come in
}

// batchersPerShard is how many flights may be under way at once for each part of the backend. Those about the
// same key are in the same lane.
const batchersPerShard = 4

var seed = maphash.MakeSeed()

// New returns a Store. Nil options are the defaults. New does not close what was handed to the backend; [Store.Close]
// closes the backend itself.
func New(b backend.Backend, options *Options) (*Store, error) {
	var o Options
	if options != nil {
		o = *options
	}
	if b == nil {
		return nil, &weir.OptionsError{Package: "store", Fields: []weir.FieldError{{Problem: "the backend must not be nil"}}}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	s := &Store{backend: b, o: o.withDefaults(), cores: map[string][]*core{}, repairSlots: make(chan struct{}, maxRepairs), closed: make(chan struct{})}
	s.events = eventqueue.New("store: OnEvent", o.OnEvent)
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.renewer.s, s.returner.s = s, s
	if p, ok := b.(backend.Interruptible); ok {
		s.interruptible = p.Interruptible()
	}
	if p, ok := b.(backend.Sharded); ok {
		s.shards.nameOf = p.ShardOf
	}
	s.shards.unknown = s.newShard("")
	return s, nil
}

// TokenBucket returns a shared token bucket of that name. If there is one in this Store
// already, the two are like those of two instances: they share what is in the store, and each
// has a queue of its own, and what it has borrowed. A nil how means the defaults.
func (s *Store) TokenBucket(name string, o limiter.TokenBucketOptions, how *LimiterOptions) (*TokenBucket, error) {
	return newLimiter(s, name, o, how)
}

// FixedWindow is [Store.TokenBucket] for a fixed window.
func (s *Store) FixedWindow(name string, o limiter.FixedWindowOptions, how *LimiterOptions) (*FixedWindow, error) {
	return newLimiter(s, name, o, how)
}

// SlidingWindow is [Store.TokenBucket] for a sliding window. Its state has a number for
// each segment in which something was taken, which every decision reads and writes; a store
// takes at most 1000 segments.
func (s *Store) SlidingWindow(name string, o limiter.SlidingWindowOptions, how *LimiterOptions) (*SlidingWindow, error) {
	return newLimiter(s, name, o, how)
}

// Concurrency is [Store.TokenBucket] for a concurrency limiter. Its leases are renewed in
// the background until they are released; those of an instance that dies run out after
// LimiterOptions.LeaseTTL.
func (s *Store) Concurrency(name string, o limiter.ConcurrencyOptions, how *LimiterOptions) (*Concurrency, error) {
	return newLimiter(s, name, o, how)
}

// PartitionedTokenBucket returns a token bucket for each key. All have the same limits.
func (s *Store) PartitionedTokenBucket(name string, o limiter.TokenBucketOptions, how *LimiterOptions) (*PartitionedTokenBucket, error) {
	return newPartitioned(s, name, o, how)
}

// PartitionedFixedWindow returns a fixed window for each key. All windows begin at the same
// time.
func (s *Store) PartitionedFixedWindow(name string, o limiter.FixedWindowOptions, how *LimiterOptions) (*PartitionedFixedWindow, error) {
	return newPartitioned(s, name, o, how)
}

// PartitionedSlidingWindow returns a sliding window for each key.
func (s *Store) PartitionedSlidingWindow(name string, o limiter.SlidingWindowOptions, how *LimiterOptions) (*PartitionedSlidingWindow, error) {
	return newPartitioned(s, name, o, how)
}

// PartitionedConcurrency returns a concurrency limiter for each key.
func (s *Store) PartitionedConcurrency(name string, o limiter.ConcurrencyOptions, how *LimiterOptions) (*PartitionedConcurrency, error) {
	return newPartitioned(s, name, o, how)
}

// Close closes every limiter of the store: who waits comes back rejected, and later calls
// return [limiter.ErrClosed]. It waits until what was released or refunded before has
// reached the store, CallTimeout at the longest. Leases that are held still are no longer
// renewed, and run out. It may be called again.
func (s *Store) Close() error {
	limit := time.Now().Add(s.o.CallTimeout)
	s.mu.Lock()
	cores := s.cores
	s.cores = nil
	s.mu.Unlock()
	if cores == nil {
		<-s.closed
		return nil
	}
	defer close(s.closed)
	var closing sync.WaitGroup
	for _, same := range cores {
		for _, c := range same {
			closing.Go(c.close) // together, because each asks for its last figures
		}
	}
	closing.Wait()
	s.waitIdle(limit)
	s.mu.Lock()
	s.closing = true
	s.mu.Unlock()
	s.cancel()
	s.goroutines.Wait()
	return s.backend.Close()
}

// waitIdle waits until nothing is on the way to the parts of the store that are there.
func (s *Store) waitIdle(limit time.Time) {
	changes := make(chan struct{}, 1)
	s.idleWaiter.Store(&changes)
	over := time.NewTimer(time.Until(limit))
	defer over.Stop()
	for !s.idle() {
		select {
		case <-changes:
		case <-over.C:
			return
		}
	}
}

func (s *Store) idle() bool {
	quiet, away := s.inFlight.Load() == 0, true
	for p := range s.eachShard {
		there := p.breaker.err() == nil
		quiet, away = quiet && (!there || p.idle()), away && !there
	}
	return quiet || away
}

// idleChanged has settle look again. It is called after each change that may make settled true.
func (s *Store) idleChanged() {
	if changes := s.idleWaiter.Load(); changes != nil {
		select {
		case *changes <- struct{}{}:
		default:
		}
	}
}

func (s *Store) finishInFlight() {
	if s.inFlight.Add(-1) == 0 {
		s.idleChanged()
	}
}

// goBackground runs f in a goroutine that Close waits for: f ends soon after s.ctx.
func (s *Store) goBackground(f func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.closing {
		s.goroutines.Go(f)
	}
}

// sleep returns false if the store was closed meanwhile.
func (s *Store) sleep(d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-s.ctx.Done():
		return false
	}
}

// callWithTimeout calls the backend, and returns after CallTimeout also if the backend does not.
func callWithTimeout[T any](s *Store, f func(ctx context.Context) (T, error)) (T, error) {
	var v, none T
	ctx, cancel := context.WithTimeout(s.ctx, s.o.CallTimeout)
	defer cancel()
	done := runIsolated("store: Backend", func() (err error) {
		v, err = f(ctx)
		return err
	})
	select {
	case err := <-done:
		return v, err
	case <-ctx.Done():
	}
	select {
	case err := <-done:
		return v, err
	default:
		return none, errTimeout
	}
}

func batcherOf(c *core, key string) int {
	var h maphash.Hash
	h.SetSeed(seed)
	h.WriteString(c.name)
	h.WriteString(key)
	return int(h.Sum64() % batchersPerShard)
}
