package limiter

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io"
	"sync"
	"sync/atomic"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/isnil"
	"github.com/weir-go/weir/internal/recovered"
)

// partitions has the limiters of all keys.
type partitions[K comparable] struct {
	idle   atomic.Int64 // IdleTimeout
	max    atomic.Int64 // MaxPartitions
	seed   maphash.Seed
	fixed  bool // hash by package deterministic, and not with seed
	shards []shard[K]
	change atomic.Pointer[applyCall[K]] // the running Apply, or nil
	closed atomic.Bool

	// Every call reads the fields before the gap, and new keys write to those after it: they are in different cache
	// lines.
	_           [8]uint64
	count       atomic.Int64 // partitions, and those being made
	pausedUntil atomic.Int64 // new keys do not search for room before
	sweep       atomic.Pointer[sweepTimer]
	applying    sync.Mutex
}

// set stores the options, with their defaults.
func (p *partitions[K]) set(o PartitionedOptions) {
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

func (p *partitions[K]) hash(key K) uint64 {
	if p.fixed {
		if text, ok := any(key).(string); ok {
			return deterministic.Hash(text)
		}
	}
	return maphash.Comparable(p.seed, key)
}

// shard returns the shard for a hash. The table of the shard uses the lower bits of the hash.
func (p *partitions[K]) shard(hash uint64) *shard[K] {
	return &p.shards[hash>>32&uint64(len(p.shards)-1)]
}

// errNoRoom is the error of a creation. It is returned bare, and only to withPartition.
var errNoRoom = errors.New("limiter: there is no room for a partition")

// withPartition calls ask with the partition of a key, pinned, and reports whether there is one. If there is none, it makes one if
// create is true and there is room. A bucket can be forgotten, and is closed then, before it is asked; then withPartition looks for
// the key again. If it finds the same bucket, the program has closed it.
func (p *partitions[K]) withPartition(
	ctx context.Context, part Partition[K], hash uint64, now int64, create bool, ask func(found partition[K]) error,
) (there bool, err error) {
	for last := (*entry[K])(nil); ; {
		found, err := p.find(ctx, part, hash, now, create)
		switch {
		case err == errNoRoom: //nolint:errorlint // find returns it bare
			return false, nil
		case err != nil || found.entry == nil:
			return false, err
		}
		err = func() error {
			defer found.unpin()
			if a := p.change.Load(); a != nil {
				_ = a.apply(found.key, found.limiter(), false)
			}
			return ask(found)
		}()
		if err != ErrClosed || found.tracked != nil || found.entry == last { //nolint:errorlint // a bucket returns it bare
			return true, err
		}
		last = found.entry
	}
}

// find returns the partition of a key, pinned if its limiter is tracked. If there is none, find makes it, or returns a zero one if
// create is false. now is the present moment.
func (p *partitions[K]) find(ctx context.Context, part Partition[K], hash uint64, now int64, create bool) (found partition[K], err error) {
	if again := part.Key; again != part.Key { // it would never be found again
		return found, optionsError("Partition.Key", part.Key, "must equal itself, which a NaN does not")
	}
	s := p.shard(hash)
	for {
		s.mu.Lock()
		if p.closed.Load() {
			s.mu.Unlock()
			return found, ErrClosed
		}
		found = s.pin(hash, part.Key)
		m := s.creation(part.Key)
		if found.entry != nil || !create {
			s.mu.Unlock()
			return found, nil
		}
		if m == nil {
			m = s.begin(part.Key)
			s.mu.Unlock()
			return p.build(s, hash, part, m, now)
		}
		done := m.wait()
		s.mu.Unlock()
		select {
		case <-done:
			if m.err != nil {
				return found, m.err
			}
		case <-ctx.Done():
			return found, ctxerr.Of(ctx)
		}
	}
}

// errMakingPanicked is for callers that waited for a partition whose factory panicked. The caller that called the factory gets
// the panic.
var errMakingPanicked = errors.New("limiter: the factory of the partition panicked")

// build makes the partition of m, with no lock held, and puts it into the table.
func (p *partitions[K]) build(
	s *shard[K], hash uint64, part Partition[K], m *creation[K], now int64,
) (made partition[K], err error) {
	counted := false
	err = errMakingPanicked
	defer func() { // also if a function of the program panics or calls Goexit
		l, failed := made, err
		if made, err = s.publish(hash, m, made, err, &p.closed); err == nil {
			p.schedule(now)
			return
		}
		if counted {
			p.count.Add(-1)
		}
		if failed == nil { // p was closed meanwhile
			err = errors.Join(err, closeLimiter(l.limiter()))
		}
	}()
	if counted = p.makeRoom(hash, now); !counted {
		return made, errNoRoom
	}
	l, failed := part.make()
	if failed == nil {
		made = newPartition(part.Key, l)
	}
	return made, failed
}

// make makes the limiter of the partition.
func (part Partition[K]) make() (Limiter, error) {
	if part.New == nil {
		return nil, optionsError("Partition.New", nil, "must not be nil; its Key is %v", part.Key)
	}
	l, err := part.New(part.Key)
	if err != nil {
		return nil, fmt.Errorf("limiter: making the limiter of a partition: %w", err)
	}
	if isnil.Value(l) {
		return nil, optionsError("Partition.New", nil, "must return a limiter; it returned nil for the key %v", part.Key)
	}
	return l, nil
}

// closeLimiter closes a limiter if it has a Close.
func closeLimiter(l Limiter) error {
	if c, ok := l.(io.Closer); ok {
		return c.Close()
	}
	return nil
}

// close closes all limiters, also if one panics.
func (p *partitions[K]) close() error {
	if !p.closed.CompareAndSwap(false, true) {
		return nil
	}
	var errs []error
	for i := range p.shards {
		var others []Limiter
		for _, each := range p.shards[i].clear() {
			if p.count.Add(-1); each.tracked == nil {
				_ = each.Close()
			} else {
				others = append(others, each.tracked.Limiter)
			}
		}
		recovered.CloseAll(others, func(_ int, err error) { errs = append(errs, err) })
	}
	return errors.Join(errs...)
}

// An applyCall is a call of Apply. It calls change for one key by one goroutine at a time, and not after it has ended: an older call
// of Apply cannot undo what a newer one does.
type applyCall[K comparable] struct {
	change  func(K, Limiter) error
	running sync.Map // the keys that change is being called for, each with a channel that is closed afterwards
	ended   atomic.Bool
}

// apply calls change for a key. If change is running for it, Apply itself waits until it has ended; another caller can be change
// itself, and does nothing.
func (a *applyCall[K]) apply(key K, l Limiter, wait bool) error {
	done := make(chan struct{})
	for {
		other, runs := a.running.LoadOrStore(key, done)
		if !runs {
			break
		}
		if !wait {
			return nil
		}
		<-other.(chan struct{})
	}
	defer close(done)
	defer a.running.Delete(key)
	if a.ended.Load() {
		return nil
	}
	return a.change(key, l)
}

// end waits until change is running for no key, and keeps it from being called again.
func (a *applyCall[K]) end() {
	a.ended.Store(true)
	for _, done := range a.running.Range {
		<-done.(chan struct{})
	}
}
