package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"
)

// making is a partition that somebody is making; who wants it too waits for done,
// which the first of them makes. If there is none after that, the lease and the
// error say why.
type making[K comparable] struct {
	done      chan struct{}
	reserved  bool
	driven    bool // its limiter is to be replenished
	partition *entry[K]
	lease     Lease
	err       error
}

// findOrMake returns the partition, made if need be, and pinned: it is not
// forgotten until the pin is taken off again. If there is none, the lease and the
// error say why.
func (p *PartitionedLimiter[R, K]) findOrMake(ctx context.Context, s *shard[K], hash uint64, part Partition[K]) (*entry[K], Lease, error) {
	if again := part.Key; again != part.Key {
		return nil, Lease{}, fmt.Errorf("%w: the key %v does not equal itself", ErrInvalidOptions, part.Key)
	}
	for {
		s.mu.Lock()
		if e := s.table.find(hash, part.Key); e != nil {
			e.pins.Add(1) // whoever forgets it has the lock
			s.mu.Unlock()
			return e, Lease{}, nil
		}
		if p.closed.Load() {
			s.mu.Unlock()
			return nil, Lease{}, ErrClosed
		}
		m := s.making[part.Key]
		if m == nil {
			m = s.begin(part.Key)
			s.mu.Unlock()
			p.build(s, hash, part, m)
			return m.partition, m.lease, m.err
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

func (s *shard[K]) begin(key K) *making[K] {
	m := &making[K]{err: errFactoryPanicked}
	if s.making == nil {
		s.making = make(map[K]*making[K])
	}
	s.making[key] = m
	return m
}

// errFactoryPanicked is for those who waited for a factory that did; the caller
// who called it has the panic.
var errFactoryPanicked = errors.New("limiter: the factory of the partition panicked")

// build makes the partition of m, pinned.
func (p *PartitionedLimiter[R, K]) build(s *shard[K], hash uint64, part Partition[K], m *making[K]) {
	defer p.publish(s, hash, part.Key, m)
	if m.reserved = p.reserve(); !m.reserved {
		m.lease, m.err = rejected(0, partitionLimit), nil
		return
	}
	l, err := makeLimiter(part)
	if m.err = err; err != nil {
		return
	}
	m.driven = drivenBy(l) != nil
	e := &entry[K]{key: part.Key, limiter: l}
	e.pins.Store(1)
	if clockedOf(l) != nil {
		p.timed.Store(true)
	}
	m.partition = e
}

// publish puts what became of m where others find it.
func (p *PartitionedLimiter[R, K]) publish(s *shard[K], hash uint64, key K, m *making[K]) {
	var late Limiter // made when everything was closed meanwhile
	var visit int64
	s.mu.Lock()
	delete(s.making, key)
	if m.done != nil {
		defer close(m.done)
	}
	switch e := m.partition; {
	case e == nil:
	case p.closed.Load():
		late, m.partition, m.err = e.limiter, nil, ErrClosed
	default:
		s.table.insert(hash, e)
		visit = p.firstVisit(s, m.driven)
	}
	s.mu.Unlock()
	if m.reserved && m.partition == nil {
		p.count.Add(-1)
	}
	if m.partition != nil {
		p.keeper.schedule(visit)
	}
	if late != nil {
		m.err = errors.Join(m.err, closeLimiter(late))
	}
}

var partitionLimit = &metadata{name: ReasonKey.name, value: ReasonPartitionLimit}

// makeLimiter makes the limiter of part, in a form that knows how long it has
// been idle.
func makeLimiter[K comparable](part Partition[K]) (Limiter, error) {
	if part.New == nil {
		return nil, fmt.Errorf("%w: the partition of key %v has no New", ErrInvalidOptions, part.Key)
	}
	l, err := part.New(part.Key)
	if err != nil {
		return nil, fmt.Errorf("limiter: making the limiter of a partition: %w", err)
	}
	if isNil(l) {
		return nil, fmt.Errorf("%w: New returned no limiter for the partition of key %v", ErrInvalidOptions, part.Key)
	}
	if isOurs(l) {
		return l, nil
	}
	return track(l), nil
}

// closeLimiter closes the limiter of a partition that nobody uses any more.
func closeLimiter(l Limiter) error {
	if c, ok := untracked(l).(io.Closer); ok {
		return c.Close()
	}
	return nil
}
