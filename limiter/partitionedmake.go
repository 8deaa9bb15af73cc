package limiter

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/weir-go/weir/internal/ctxerr"
	"github.com/weir-go/weir/internal/isnil"
)

// A creation is a partition that one caller is making. Other callers for the key wait until done is closed; the first of
// them makes the channel. If err is not nil then, they return it; otherwise they look the key up again.
type creation[K comparable] struct {
	key  K
	next *creation[K] // in the same shard
	done chan struct{}
	err  error
}

// findOrMake returns the partition, and makes it if it is not there. A tracked limiter is pinned. If there are
// MaxPartitions, it returns a zero partition. now is the present moment.
func (p *PartitionedLimiter[R, K]) findOrMake(
	ctx context.Context, s *shard[K], hash uint64, part Partition[K], now int64,
) (found partition[K], err error) {
	if err := keyError(part.Key); err != nil {
		return found, err
	}
	reserved := false // a place in count
	for {
		s.mu.Lock()
		found = s.pin(hash, part.Key)
		m := s.creation(part.Key)
		closed := p.closed.Load()
		if found.entry == nil && m == nil && !closed && (reserved || p.reserve()) {
			m = s.begin(part.Key)
			s.mu.Unlock()
			return p.build(s, hash, part, m, now)
		}
		var done <-chan struct{}
		if m != nil {
			done = m.wait()
		}
		s.mu.Unlock()
		if reserved {
			p.count.Add(-1)
			reserved = false
		}
		switch {
		case found.entry != nil:
			return found, nil
		case closed:
			return found, ErrClosed
		case m == nil:
			if reserved = p.makeRoom(hash, now); !reserved {
				return found, nil
			}
			continue
		}
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

// keyError returns the error of a key that would never be found again, or nil.
func keyError[K comparable](key K) error {
	if again := key; again != key {
		return optionsError("Partition.Key", key, "must equal itself, which a NaN does not")
	}
	return nil
}

// creation returns the creation of that key, or nil.
func (s *shard[K]) creation(key K) *creation[K] {
	m := s.making
	for m != nil && m.key != key {
		m = m.next
	}
	return m
}

// wait returns a channel that is closed when the partition is there. The shard is locked.
func (m *creation[K]) wait() <-chan struct{} {
	if m.done == nil {
		m.done = make(chan struct{})
	}
	return m.done
}

// begin adds a creation for a key. The shard is locked.
func (s *shard[K]) begin(key K) *creation[K] {
	m := s.unused
	if s.unused = nil; m == nil {
		m = new(creation[K])
	}
	m.key, m.next = key, s.making
	s.making = m
	return m
}

// end removes a creation. The shard is locked.
func (s *shard[K]) end(m *creation[K], err error) {
	link := &s.making
	for *link != m {
		link = &(*link).next
	}
	*link, m.err = m.next, err
	if m.done != nil {
		close(m.done)
		return
	}
	*m = creation[K]{} // no other caller has it
	s.unused = m
}

// errFactoryPanicked is for callers that waited for a factory that panicked. The caller that called the factory gets
// the panic.
var errFactoryPanicked = errors.New("limiter: the factory of the partition panicked")

// build makes the partition of m, with no lock held, and puts it into the table.
func (p *PartitionedLimiter[R, K]) build(
	s *shard[K], hash uint64, part Partition[K], m *creation[K], now int64,
) (made partition[K], err error) {
	err = errFactoryPanicked
	defer func() { // also if the factory panics or calls Goexit
		if err = p.publish(s, hash, m, made, err, now); err != nil {
			made = partition[K]{}
		}
	}()
	l, failed := makeLimiter(part)
	if failed == nil {
		made = newPartition(part.Key, l)
	}
	return made, failed
}

// publish puts a new partition into the table, if there is no error.
func (p *PartitionedLimiter[R, K]) publish(s *shard[K], hash uint64, m *creation[K], made partition[K], err error, now int64) error {
	s.mu.Lock()
	closed := err == nil && p.closed.Load()
	switch {
	case closed:
		err = ErrClosed
	case err == nil:
		if made.tracked != nil {
			made.tracked.pin()
		}
		s.insert(hash, made)
	}
	s.end(m, err)
	s.mu.Unlock()
	if err == nil {
		p.schedule(now)
		return nil
	}
	p.count.Add(-1)
	if closed {
		err = errors.Join(err, closeLimiter(made.limiter()))
	}
	return err
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
	if c, ok := l.(io.Closer); ok {
		return c.Close()
	}
	return nil
}
