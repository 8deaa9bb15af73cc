package limiter

import (
	"sync"
	"sync/atomic"
)

// A shard has a part of the partitions, in a table of its own with a lock and a cache line of its own. The table is open
// addressing with linear probing, and at most three quarters full, so that looking a key up reads one line of the table
// and the entry. It is the ring of a clock, too: hand goes round it in search of partitions that are idle.
//
// find takes no lock: it can miss an entry that is being moved, and can find one that has
// just been taken out, but never one of another key. A caller that finds nothing, or an entry that is dead, looks again
// with the lock. The other methods need it, unless they say that they take it.
type shard[K comparable] struct {
	mu     sync.Mutex
	places atomic.Pointer[[]place[K]] // or nil
	n      int                        // entries
	hand   int                        // the place that the next search for room begins with
	held   int                        // above 0, no entry is taken out; see PartitionedLimiter.All
	making *creation[K]               // all keys whose limiter is being made
	unused *creation[K]               // one that can be used again, or nil
	others map[*entry[K]]*tracked     // the limiters that are not the bucket of their entry
}

// A place is for an entry. An empty one has none.
type place[K comparable] struct {
	tag   atomic.Uint32 // the lower half of the hash of the entry's key
	again atomic.Bool   // the entry was found again since the hand passed it
	entry atomic.Pointer[entry[K]]
}

const leastPlaces = 8

// find returns the entry of a key, or nil.
func (s *shard[K]) find(hash uint64, key K) *entry[K] {
	all := s.places.Load()
	if all == nil {
		return nil
	}
	places, tag := *all, uint32(hash)
	i := home(tag, len(places))
	for range places {
		at := &places[i]
		e := at.entry.Load()
		if e == nil {
			return nil
		}
		if at.tag.Load() == tag && e.key == key {
			if !at.again.Load() {
				at.again.Store(true)
			}
			return e
		}
		if i++; i == len(places) {
			i = 0
		}
	}
	return nil
}

// home returns the place in which the search for an entry begins, of n places.
func home(tag uint32, n int) int { return int(uint64(tag) * uint64(n) >> 32) }

func (s *shard[K]) table() []place[K] {
	if all := s.places.Load(); all != nil {
		return *all
	}
	return nil
}

// insert adds a partition whose key is not in the table.
func (s *shard[K]) insert(hash uint64, added partition[K]) {
	if n := len(s.table()); 4*(s.n+1) > 3*n {
		s.resize(max(n+n/2, min(4*n, 128), leastPlaces)) // a small table grows fast: moving an entry costs as much as adding one
	}
	put(s.table(), uint32(hash), false, added.entry)
	s.n++
	if added.tracked != nil {
		if s.others == nil {
			s.others = map[*entry[K]]*tracked{}
		}
		s.others[added.entry] = added.tracked
	}
}

// put puts an entry into the first empty place for it.
func put[K comparable](places []place[K], tag uint32, again bool, e *entry[K]) {
	i := home(tag, len(places))
	for places[i].entry.Load() != nil {
		if i++; i == len(places) {
			i = 0
		}
	}
	places[i].set(tag, again, e)
}

func (p *place[K]) set(tag uint32, again bool, e *entry[K]) {
	p.tag.Store(tag)
	p.again.Store(again)
	p.entry.Store(e)
}

// resize moves all entries to a table of n places.
func (s *shard[K]) resize(n int) {
	grown := make([]place[K], n)
	for i := range s.table() {
		if old := &s.table()[i]; old.entry.Load() != nil {
			put(grown, old.tag.Load(), old.again.Load(), old.entry.Load())
		}
	}
	s.places.Store(&grown)
}

// shrink gives memory back after many entries have been taken out. It takes the lock.
func (s *shard[K]) shrink() {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch n := len(s.table()); {
	case s.n == 0:
		s.places.Store(nil)
	case n > leastPlaces && s.n < n/8:
		s.resize(max(2*s.n, leastPlaces))
	}
}

// indexOf returns the place of an entry, or -1.
func (s *shard[K]) indexOf(tag uint32, e *entry[K]) int {
	places := s.table()
	for i, left := home(tag, len(places)), len(places); left > 0; i, left = (i+1)%len(places), left-1 {
		switch places[i].entry.Load() {
		case e:
			return i
		case nil:
			return -1
		}
	}
	return -1
}

// removeAt takes out the entry of a place. The entries behind it move up, as far as their hashes allow, so the hand goes back to it.
func (s *shard[K]) removeAt(i int) {
	places := s.table()
	s.hand = i
	if e := places[i].entry.Load(); !e.hasBucket() {
		delete(s.others, e)
	}
	n := len(places)
	for j := (i + 1) % n; places[j].entry.Load() != nil; j = (j + 1) % n {
		if tag := places[j].tag.Load(); (j-home(tag, n)+n)%n >= (j-i+n)%n {
			places[i].set(tag, places[j].again.Load(), places[j].entry.Load())
			i = j
		}
	}
	places[i].entry.Store(nil)
	s.n--
}

// clear takes out all partitions, and returns them. It takes the lock.
func (s *shard[K]) clear() []partition[K] {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all()
	s.places.Store(nil)
	s.n, s.others = 0, nil
	return all
}

func (s *shard[K]) all() []partition[K] {
	all := make([]partition[K], 0, s.n)
	for i := range s.table() {
		if e := s.table()[i].entry.Load(); e != nil {
			all = append(all, s.partition(e))
		}
	}
	return all
}

// partition returns the partition of an entry that is in the table.
func (s *shard[K]) partition(e *entry[K]) partition[K] {
	if e.hasBucket() {
		return partition[K]{entry: e}
	}
	return partition[K]{e, s.others[e]}
}

// pin returns the partition of a key, pinned if its limiter is tracked, or a zero one.
func (s *shard[K]) pin(hash uint64, key K) (found partition[K]) {
	e := s.find(hash, key)
	if e == nil {
		return found
	}
	found = s.partition(e)
	found.pin()
	return found
}

// A creation is a partition that one caller is making. Other callers for the key wait until done is closed; the first of
// them makes the channel. If err is not nil then, they return it; otherwise they look the key up again.
type creation[K comparable] struct {
	key  K
	next *creation[K] // in the same shard
	done chan struct{}
	err  error
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

// begin adds a creation for a key.
func (s *shard[K]) begin(key K) *creation[K] {
	m := s.unused
	if s.unused = nil; m == nil {
		m = new(creation[K])
	}
	m.key, m.next = key, s.making
	s.making = m
	return m
}

// publish ends a creation, and puts the partition into the table, pinned, if there is no error and closed is false. It takes the
// lock.
func (s *shard[K]) publish(
	hash uint64, m *creation[K], made partition[K], err error, closed *atomic.Bool,
) (partition[K], error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err == nil && closed.Load() {
		err = ErrClosed
	}
	if err == nil {
		s.insert(hash, made)
		made.pin()
	} else {
		made = partition[K]{}
	}
	s.end(m, err)
	return made, err
}

// end removes a creation.
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

// yield yields the partitions of the shard. It takes the lock.
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

// allBeingMade returns channels that are closed when the partitions that are being made are there. It takes the lock.
func (s *shard[K]) allBeingMade() []<-chan struct{} {
	s.mu.Lock()
	defer s.mu.Unlock()
	var all []<-chan struct{}
	for m := s.making; m != nil; m = m.next {
		all = append(all, m.wait())
	}
	return all
}

// hold returns all partitions of the shard. They are not forgotten until letGo. It takes the lock.
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
