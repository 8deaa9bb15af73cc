package window

import (
	"maps"
	"math/bits"
	"slices"
)

// ReadGroup reads the states of the keys of a dynamic window, as Read does, all of them at one time.
func ReadGroup(states map[string]string, r Rules, now int64) (map[string]*Window, error) {
	g, windows := &group{Rules: r, now: now / r.Bucket, participantsAt: map[int64]*participants{}}, map[string]*Window{}
	all := map[int64]Bucket{}
	for i, key := range slices.Sorted(maps.Keys(states)) {
		w, err := Read(states[key], r, now)
		if err != nil {
			return nil, err
		}
		w.group, w.index, windows[key] = g, i, w
		g.windows, g.now = append(g.windows, w), max(g.now, w.now)
		for _, b := range w.Filled {
			sum := all[b.At]
			all[b.At] = Bucket{At: b.At, Started: sum.Started + b.Started, Reserved: sum.Reserved + b.Reserved}
		}
	}
	for _, w := range g.windows {
		w.now = g.now
	}
	g.all = Window{Rules: r, now: g.now}
	for _, at := range slices.Sorted(maps.Keys(all)) {
		g.all.Filled = append(g.all.Filled, all[at])
	}
	return windows, nil
}

// A group is a dynamic window: the windows of its keys.
//
// A thousand jobs of one batch can need a thousand keys. So what depends on all keys is computed once for a batch and
// updated by changed: the sum of all windows, and the keys that take part in each window that was asked about.
type group struct {
	Rules
	now            int64
	windows        []*Window // in the order of their keys
	all            Window    // the sum of all windows
	participantsAt map[int64]*participants
}

// participants are the keys that take part in the window that ends at one bucket.
type participants struct {
	used []uint64 // one bit for each index
	n    int64
}

// maxTries bounds the search for a free bucket. A job for which none is found comes back where the search has ended.
const maxTries = 2 * MaxAhead

// changed counts a change in a bucket of the key with index i.
func (g *group) changed(i int, at, started, reserved int64) {
	g.all.add(Bucket{At: at, Started: started, Reserved: reserved})
	if started+reserved < 0 {
		for _, other := range g.windows {
			other.freed(at)
		}
	}
	for end := at; end < at+g.Buckets; end++ {
		if s := g.participantsAt[end]; s != nil {
			s.set(i, g.windows[i].used(end))
		}
	}
}

// participantsOf returns the keys that take part in the window that ends at a bucket.
func (g *group) participantsOf(at int64) *participants {
	s := g.participantsAt[at]
	if s == nil {
		s = &participants{used: make([]uint64, len(g.windows)/64+1)}
		for i, w := range g.windows {
			s.set(i, w.used(at))
		}
		g.participantsAt[at] = s
	}
	return s
}

func (s *participants) has(i int) bool { return s.used[i/64]&(1<<(i%64)) != 0 }

func (s *participants) set(i int, used bool) {
	if used == s.has(i) {
		return
	}
	s.used[i/64] ^= 1 << (i % 64)
	if used {
		s.n++
	} else {
		s.n--
	}
}

// rank returns how many keys with a lower index take part.
func (s *participants) rank(i int) (n int64) {
	for _, word := range s.used[:i/64] {
		n += int64(bits.OnesCount64(word))
	}
	return n + int64(bits.OnesCount64(s.used[i/64]&(1<<(i%64)-1)))
}

// hasCapacity reports whether the executions that have begun leave one within the capacity, in the window that ends at a
// bucket.
func (g *group) hasCapacity(at int64) bool {
	if g.Shares.Capacity == 0 || g.Shares.AtOnce {
		return true
	}
	return g.all.started(at) < g.Shares.Capacity
}

// keyLimit returns the limit of a key in the window that ends at a bucket. ok is false if the key does not take part in it
// and cannot join, because too many others do.
func (g *group) keyLimit(i int, at int64) (limit int64, ok bool) {
	others := g.participantsOf(at)
	n := others.n
	if !others.has(i) {
		if n >= g.Shares.Keys {
			return 0, false
		}
		n++
	}
	s := g.Shares
	if s.Capacity == 0 {
		return s.Max, true
	}
	limit = s.Capacity / n
	if extra := s.Capacity % n; extra > 0 && others.rank(i) < extra {
		limit++
	}
	return max(s.Min, min(limit, s.Max)), true
}

func (g *group) fits(w *Window, at int64) bool {
	if !g.hasCapacity(at) {
		return false
	}
	limit, ok := g.keyLimit(w.index, at)
	return ok && w.fits(at, limit)
}

// firstFree returns the first bucket, not before from, in which there is room for the key. Reservations of other keys
// do not keep the key out: when their jobs come, their limits are smaller. Executions that have begun do.
//
// Room can come up where a bucket of any key leaves the window, and where a reservation of the key makes it take part.
func (g *group) firstFree(w *Window, from int64) int64 {
	from = w.searchFrom(from)
	leaves, _ := g.all.search(from - g.Buckets + 1)
	own, _ := w.search(from + 1)
	at := from
	for range maxTries {
		if g.fits(w, at) {
			break
		}
		for leaves < len(g.all.Filled) && g.all.Filled[leaves].At+g.Buckets <= at {
			leaves++
		}
		for own < len(w.Filled) && w.Filled[own].At <= at {
			own++
		}
		at += g.Buckets
		if leaves < len(g.all.Filled) {
			at = g.all.Filled[leaves].At + g.Buckets
		}
		if own < len(w.Filled) {
			at = min(at, w.Filled[own].At)
		}
	}
	w.foundFree = at
	return at
}
