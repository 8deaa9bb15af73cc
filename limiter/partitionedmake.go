package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-go/weir/internal/isnil"
)

// A creation is a partition that one caller is making. Other callers for the key wait until done is closed; the first
// of them makes the channel. If partition is still nil when done is closed, the waiting callers return lease and err.
type creation[K comparable] struct {
	key       K
	next      *creation[K] // in the same shard
	done      chan struct{}
	reserved  bool // the partition is counted in PartitionedLimiter.count
	manual    bool // TryReplenish of its limiter has to be called
	partition *entry[K]
	lease     Lease
	err       error
}

// findOrMake returns the partition, and makes it if it is not there. The partition is pinned, unless pin is false and
// its limiter is clocked. If the entry is nil, the caller must return the lease and the error. now is the present
// moment, or the constant unknown.
func (p *PartitionedLimiter[R, K]) findOrMake(
	ctx context.Context, s *shard[K], hash uint64, part Partition[K], now int64, pin bool,
) (*entry[K], Lease, error) {
	if err := keyError(part.Key); err != nil {
		return nil, Lease{}, err
	}
	for {
		s.mu.Lock()
		if e := s.table.find(hash, part.Key); e != nil {
			if pin || !e.clocked() {
				e.pins.Add(1) // rule 2 of entry
			}
			s.mu.Unlock()
			return e, Lease{}, nil
		}
		if p.closed.Load() {
			s.mu.Unlock()
			return nil, Lease{}, ErrClosed
		}
		m := s.beingMade(part.Key)
		if m == nil {
			m = s.begin(part.Key)
			s.mu.Unlock()
			if now == unknown {
				now = moment()
			}
			return p.build(s, hash, part, m, now, pin)
		}
		if m.done == nil {
			m.done = make(chan struct{})
		}
		s.mu.Unlock()
		select {
		case <-m.done:
			if m.partition == nil {
				return nil, m.lease, m.err
			}
		case <-ctx.Done():
			return nil, Lease{}, contextError(ctx)
		}
	}
}

// keyError returns the error of a key that would never be found again, or nil.
func keyError[K comparable](key K) error {
	if again := key; again != key {
		return optionsError("Partition.Key", key, "must equal itself, which a NaN does not")
	}
	return nil
}

// beingMade returns the creation of that key, or nil.
func (s *shard[K]) beingMade(key K) *creation[K] {
	m := s.creations
	for m != nil && m.key != key {
		m = m.next
	}
	return m
}

// begin adds a creation for a key. The shard is locked.
func (s *shard[K]) begin(key K) *creation[K] {
	m := s.reusable
	if s.reusable = nil; m == nil {
		m = new(creation[K])
	}
	m.key, m.err, m.next = key, errFactoryPanicked, s.creations
	s.creations = m
	return m
}

// end removes a creation. The shard is locked.
func (s *shard[K]) end(m *creation[K]) {
	link := &s.creations
	for *link != m {
		link = &(*link).next
	}
	*link = m.next
}

// errFactoryPanicked is for callers that waited for a factory that panicked. The caller that called the factory gets
// the panic.
var errFactoryPanicked = errors.New("limiter: the factory of the partition panicked")

// build makes the partition of m for findOrMake and puts it into the table. Its pin and its results are those of
// findOrMake.
func (p *PartitionedLimiter[R, K]) build(
	s *shard[K], hash uint64, part Partition[K], m *creation[K], now int64, pin bool,
) (*entry[K], Lease, error) {
	complete := false
	defer func() {
		if !complete { // the factory panicked
			_, _, _ = p.publish(s, m, now)
		}
	}()
	p.makePartition(hash, part, m, now, pin)
	complete = true
	return p.publish(s, m, now)
}

// makePartition calls the factory, if there is room for a partition, and leaves the result in m.
func (p *PartitionedLimiter[R, K]) makePartition(hash uint64, part Partition[K], m *creation[K], now int64, pin bool) {
	if m.reserved = p.reserve(now); !m.reserved {
		m.lease, m.err = rejected(0, partitionLimit), nil
		return
	}
	l, err := makeLimiter(part)
	if m.err = err; err != nil {
		return
	}
	made := newEntry(part.Key, hash, l)
	m.manual = made.replenisher() != nil
	if pin || !made.clocked() {
		made.pins.Store(1)
	}
	m.partition = made
	if made.clocked() && !p.anyClocked.Load() {
		p.anyClocked.Store(true)
	}
}

// publish puts the result of m into the table, and returns it.
func (p *PartitionedLimiter[R, K]) publish(s *shard[K], m *creation[K], now int64) (*entry[K], Lease, error) {
	var unwanted Limiter // made while p was closed
	visit := int64(never)
	s.mu.Lock()
	s.end(m)
	if m.done != nil {
		defer close(m.done)
	}
	switch e := m.partition; {
	case e == nil:
	case p.closed.Load():
		unwanted, m.partition, m.err = e.limiter(), nil, ErrClosed
	default:
		s.table.insert(e)
		visit = p.firstVisit(s, m.manual, now)
	}
	made := *m
	if m.done == nil { // no other caller has a reference
		*m = creation[K]{}
		s.reusable = m
	}
	s.mu.Unlock()
	if made.reserved && made.partition == nil {
		p.count.Add(-1)
	}
	if visit != never {
		p.janitor.schedule(visit)
	}
	if unwanted != nil {
		made.err = errors.Join(made.err, closeLimiter(unwanted))
		if made.done != nil {
			m.err = made.err // for the callers that wait
		}
	}
	return made.partition, made.lease, made.err
}

// makeLimiter makes the limiter of part.
func makeLimiter[K comparable](part Partition[K]) (Limiter, error) {
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
	if c, ok := untracked(l).(io.Closer); ok {
		return c.Close()
	}
	return nil
}
