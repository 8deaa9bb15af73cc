package limiter

import (
	"fmt"
	"iter"
)

// All yields the partitions that there are, with the limiters that their factory
// made, in no order. Partitions that are being made are waited for, so that after
// a change of what the factory makes, All has every limiter of the old kind. What
// is yielded is not forgotten meanwhile; partitions that are made later may or may
// not be among them.
func (p *PartitionedLimiter[R, K]) All() iter.Seq2[K, Limiter] {
	return func(yield func(K, Limiter) bool) {
		for i := range p.shards {
			if !p.shards[i].yield(yield) {
				return
			}
		}
	}
}

// yield yields the partitions of one shard.
func (s *shard[K]) yield(yield func(K, Limiter) bool) bool {
	for _, done := range s.allBeingMade() {
		<-done
	}
	pinned := s.pinAll()
	next := 0
	defer func() { // also if yield panics
		for _, e := range pinned[next:] {
			e.unpin()
		}
	}()
	for _, e := range pinned {
		more := yield(e.key, untracked(e.limiter()))
		next++
		e.unpin()
		if !more {
			return false
		}
	}
	return true
}

// allBeingMade returns what tells when they are made.
func (s *shard[K]) allBeingMade() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []<-chan struct{}
	for m := s.making; m != nil; m = m.next {
		if m.done == nil {
			m.done = make(chan struct{})
		}
		all = append(all, m.done)
	}
	return all
}

func (s *shard[K]) pinAll() []*entry[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	heads := s.table.heads.Load()
	if heads == nil {
		return nil
	}
	all := make([]*entry[K], 0, s.table.n)
	for i := range heads.len() {
		for e := heads.slots[i].Load(); e != nil; e = e.next.Load() {
			e.pins.Add(1)
			all = append(all, e)
		}
	}
	return all
}

// Apply calls change for every partition's limiter, as [PartitionedLimiter.All] yields
// them, and returns its first error, with which it ends. As soon as Apply has begun, a
// call for a key waits for change to return for that key's limiter, and is answered after
// that; so what change does is in force for every key at once, however many there are:
//
//	err := perUser.Apply(func(_ string, l limiter.Limiter) error {
//		return l.(*limiter.TokenBucket).Reconfigure(raised)
//	})
//
// New partitions are made by their factory: have it make the new kind of limiter before.
//
// change may be called more than once for a limiter, also after it has returned an
// error, by several goroutines at once, those of the calls included. It must not use p.
// Calls of Apply wait for each other.
func (p *PartitionedLimiter[R, K]) Apply(change func(key K, l Limiter) error) error {
	if change == nil {
		return fmt.Errorf("%w: Apply: change is nil", ErrInvalidOptions)
	}
	p.applying.Lock()
	defer p.applying.Unlock()
	p.change.Store(&change)
	defer p.change.Store(nil)
	for key, l := range p.All() {
		if err := change(key, l); err != nil {
			return err
		}
	}
	return nil
}

// Reconfigure changes the options. Partitions above a lower MaxPartitions stay for
// as long as they are in use. The limiters of the partitions have a Reconfigure of
// their own; see [PartitionedLimiter.All]. The error is an [ErrInvalidOptions].
func (p *PartitionedLimiter[R, K]) Reconfigure(o PartitionedOptions) error {
	if err := o.Validate(); err != nil {
		return err
	}
	p.set(o)
	now := clock()
	for i := range p.shards {
		s := &p.shards[i]
		s.mu.Lock()
		if s.table.n > 0 {
			s.due = min(s.due, now)
		}
		s.mu.Unlock()
	}
	if p.count.Load() > 0 && !p.closed.Load() {
		p.keeper.schedule(max(now, p.resting(now)))
	}
	return nil
}
