package limiter

import (
	"iter"
	"sync"
)

// All yields the partitions with the limiters that their factory made, in no order. It waits for partitions that are
// being made, so after a change of the factory it yields every limiter that the old factory made. A partition is not
// forgotten while it is yielded. Partitions that are made while All runs may be yielded or not.
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
	all := s.hold()
	defer s.letGo() // even if yield panics
	for _, each := range all {
		if !yield(each.key, each.limiter()) {
			return false
		}
	}
	return true
}

// allBeingMade returns channels that are closed when the partitions that are being made are there.
func (s *shard[K]) allBeingMade() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []<-chan struct{}
	for m := s.making; m != nil; m = m.next {
		all = append(all, m.wait())
	}
	return all
}

// hold returns all partitions of the shard. They are not forgotten until letGo.
func (s *shard[K]) hold() []partition[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held++
	return s.all()
}

func (s *shard[K]) letGo() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.held--
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
// change can be called several times for a limiter, one call at a time, by any goroutine that calls Apply or asks for
// permits. If a call that asks for permits calls change, the error of change is ignored. change must not ask p for
// permits of other keys, and must not call Apply: calls of Apply wait for each other.
func (p *PartitionedLimiter[R, K]) Apply(change func(key K, l Limiter) error) error {
	if change == nil {
		return optionsError("change", nil, "must not be nil")
	}
	p.applying.Lock()
	defer p.applying.Unlock()
	a := &applyCall[K]{change: change}
	p.change.Store(a)
	defer p.change.Store(nil)
	for key, l := range p.All() {
		if err := a.apply(key, l); err != nil {
			return err
		}
	}
	return nil
}

// An applyCall is a call of Apply.
type applyCall[K comparable] struct {
	change  func(K, Limiter) error
	running sync.Map // the keys that change is being called for
}

// apply calls change, unless change is running for that key: then the caller can be change itself.
func (a *applyCall[K]) apply(key K, l Limiter) error {
	if _, runs := a.running.LoadOrStore(key, nil); runs {
		return nil
	}
	defer a.running.Delete(key)
	return a.change(key, l)
}

// applyTo does for a partition what a running Apply does.
func (p *PartitionedLimiter[R, K]) applyTo(to partition[K]) {
	if a := p.change.Load(); a != nil {
		_ = a.apply(to.key, to.limiter())
	}
}
