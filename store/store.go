package store

import (
	"cmp"
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/weir-go/weir"
	"github.com/weir-go/weir/internal/eventqueue"
	"github.com/weir-go/weir/limiter"
	"github.com/weir-go/weir/store/backend"
	"github.com/weir-go/weir/store/internal/background"
	"github.com/weir-go/weir/store/internal/calls"
)

// A Store makes limiters whose state is in a [backend.Backend]. Most programs get one from weirredis.New or
// weirpostgres.New, and have one Store for a process. It is safe for use by many goroutines. Making a limiter does not
// call the backend, so a program starts while the store is away.
//
// All instances that make a limiter with the same name and kind in the same store share it. Reconfigure sets the limits
// for all instances. So does the first use of a limiter, unless newer limits are in force; see
// LimiterOptions.Generation.
type Store struct {
	calls      *calls.Client
	background *background.Group
	o          Options
	count      counters
	events     *eventqueue.Queue[Event]
	begun      time.Time
	listener   listener
	closing    sync.Once

	// Lock order: the lock of a grant; that of a keyState; those of a keyShard and this one; those of the packages below.

	mu    sync.Mutex
	cores map[*core]struct{} // nil once the Store is being closed
}

// New returns a Store. If options is nil, the defaults apply. [Store.Close] closes the backend, but not what the backend was
// given, such as a client.
func New(b backend.Backend, options *Options) (*Store, error) {
	o := *cmp.Or(options, new(Options))
	if b == nil {
		return nil, &weir.OptionsError{Package: "store", Fields: []weir.FieldError{{Problem: "the backend must not be nil"}}}
	}
	if err := o.Validate(); err != nil {
		return nil, err
	}
	o = o.withDefaults()
	s := &Store{
		background: background.New(), o: o, cores: map[*core]struct{}{}, events: eventqueue.New("store: OnEvent", o.OnEvent),
		begun: time.Now(),
	}
	s.listener.s = s
	s.calls = calls.New(b, calls.Options{
		Background: s.background, Timeout: o.CallTimeout, FailureThreshold: o.FailureThreshold, ProbeInterval: o.ProbeInterval,
		Lost: s.listener.lost, Recovered: s.listener.recovered,
	})
	return s, nil
}

// Limiter returns a shared limiter with that name, of the kind of the options o: a token bucket for a
// [limiter.TokenBucketOptions], and so on. Nil options shared have the defaults. Two limiters with one name in the same Store
// behave like those of two instances: they share the state in the store, and each has its own queue and its own borrowed
// blocks.
//
// The state of a sliding window has one number for each segment in which permits were taken, and every decision reads and
// writes all of them. The leases of a concurrency limiter are renewed in the background until they are released; those of an
// instance that dies expire after LimiterOptions.LeaseTTL.
func (s *Store) Limiter(name string, o limiter.Options, shared *LimiterOptions) (*Limiter, error) {
	c, err := newCore(s, name, o, shared, false)
	if err != nil {
		return nil, err
	}
	return &Limiter{handle{c}}, nil
}

// Partitioned returns a shared limiter that has the limits o for each key. The windows of all keys begin at the same time. See
// [Store.Limiter].
func (s *Store) Partitioned(name string, o limiter.Options, shared *LimiterOptions) (*Partitioned, error) {
	c, err := newCore(s, name, o, shared, true)
	if err != nil {
		return nil, err
	}
	return &Partitioned{handle{c}}, nil
}

// Probe makes a round trip like those for decisions and returns why it failed, after CallTimeout at the latest. A program
// whose first requests must not wait for a connection calls it before it says that it is ready.
func (s *Store) Probe(ctx context.Context) error { return s.calls.Probe(ctx) }

// Close closes all limiters of the Store: waiting callers are rejected, and later calls return [limiter.ErrClosed].
// Close waits, at most Options.CallTimeout, until earlier releases and refunds have reached the store. Leases that are
// still held are no longer renewed and expire. It can be called more than once.
func (s *Store) Close() (err error) {
	s.closing.Do(func() {
		limit := time.Now().Add(s.o.CallTimeout)
		s.mu.Lock()
		cores := s.cores
		s.cores = nil
		s.mu.Unlock()
		var each sync.WaitGroup
		for c := range cores {
			each.Go(c.close) // together, because each loads its final statistics
		}
		each.Wait()
		s.background.WaitIdle(limit)
		s.background.Close(limiter.ErrClosed)
		err = s.calls.Close()
	})
	return err
}

func (s *Store) report(e Event) { s.events.Add(e) }

// counters counts for [Counters].
type counters struct {
	decisions, cached, fromBlocks, outages atomic.Int64
}
