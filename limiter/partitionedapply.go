package limiter

import (
	"hash/maphash"
	"iter"
	"slices"
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
	pinned := s.pinAll()
	next := 0
	defer func() { // even if yield panics
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

// allBeingMade returns channels that are closed when the partitions that are being made are there.
func (s *shard[K]) allBeingMade() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []<-chan struct{}
	for m := s.creations; m != nil; m = m.next {
		if m.done == nil {
			m.done = make(chan struct{})
		}
		all = append(all, m.done)
	}
	return all
}

// pinAll pins and returns all partitions of the shard.
func (s *shard[K]) pinAll() []*entry[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := make([]*entry[K], 0, s.table.n)
	s.table.each(0, s.table.chains(), func(e *entry[K]) {
		e.pins.Add(1)
		all = append(all, e)
	})
	return all
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
	a := &applyCall[K]{change: change, seed: p.seed}
	p.change.Store(a)
	defer p.change.Store(nil)
	for key, l := range p.All() {
		if err := a.apply(key, l); err != nil {
			return err
		}
	}
	return nil
}

// An applyCall is a call of Apply. Apply goes through millions of keys with a lock for each, so the keys are spread over
// several locks: with one lock, a call for a key would wait for milliseconds.
type applyCall[K comparable] struct {
	change  func(K, Limiter) error
	seed    maphash.Seed
	running [64]runningChanges[K] // by the key's hash
}

// runningChanges are the keys that change is being called for.
type runningChanges[K comparable] struct {
	mu   sync.Mutex
	keys []K
	_    [4]uint64 // a cache line for each
}

// apply calls change, unless change is running for that key: then the caller can be change itself.
func (a *applyCall[K]) apply(key K, l Limiter) error {
	r := &a.running[maphash.Comparable(a.seed, key)%uint64(len(a.running))]
	if !r.begin(key) {
		return nil
	}
	defer r.end(key)
	return a.change(key, l)
}

// begin adds a key. It returns false if the key is there.
func (r *runningChanges[K]) begin(key K) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	if slices.Contains(r.keys, key) {
		return false
	}
	r.keys = append(r.keys, key)
	return true
}

// end removes a key.
func (r *runningChanges[K]) end(key K) {
	r.mu.Lock()
	defer r.mu.Unlock()
	i := slices.Index(r.keys, key)
	r.keys = slices.Delete(r.keys, i, i+1)
}
