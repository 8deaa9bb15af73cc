package jobs

import (
	"maps"
	"math/bits"
	"slices"
)

// A dynamicWindow is the state of a dynamic window: the windows of its keys.
//
// A thousand jobs of one batch can need a thousand keys. So what depends on all keys is computed once for a batch and
// updated by window.onChange: the sum of all windows, and the keys that take part in each window that was asked about.
type dynamicWindow struct {
	rules
	keys           map[string]*window
	now            int64
	indexes        map[string]int // of the keys, in order
	windows        []*window      // by index
	all            window         // the sum of all windows
	participantsAt map[int64]*participants
}

// participants are the keys that take part in the window that ends at one bucket.
type participants struct {
	used []uint64 // one bit for each index
	n    int64
}

// maxTries bounds the search for a free bucket. A job for which none is found comes back where the search has ended.
const maxTries = 2 * maxAhead

// prepare computes what depends on all keys, if keys have been added.
func (d *dynamicWindow) prepare() {
	if len(d.indexes) == len(d.keys) {
		return
	}
	d.indexes, d.windows, d.participantsAt = make(map[string]int, len(d.keys)), make([]*window, len(d.keys)), map[int64]*participants{}
	all := map[int64]bucket{}
	for i, key := range slices.Sorted(maps.Keys(d.keys)) {
		w := d.keys[key]
		d.indexes[key], d.windows[i] = i, w
		w.onChange = func(at, started, reserved int64) { d.changed(i, w, at, started, reserved) }
		for _, b := range w.filled {
			sum := all[b.at]
			all[b.at] = bucket{at: b.at, started: sum.started + b.started, reserved: sum.reserved + b.reserved}
		}
	}
	d.all = window{width: d.bucket, buckets: d.buckets, now: d.now}
	for _, at := range slices.Sorted(maps.Keys(all)) {
		d.all.filled = append(d.all.filled, all[at])
	}
}

// changed is window.onChange of the key with index i.
func (d *dynamicWindow) changed(i int, w *window, at, started, reserved int64) {
	d.all.add(bucket{at: at, started: started, reserved: reserved})
	if started+reserved < 0 {
		for _, other := range d.windows {
			other.freed(at)
		}
	}
	for end := at; end < at+d.buckets; end++ {
		if s := d.participantsAt[end]; s != nil {
			s.set(i, w.used(end))
		}
	}
}

// participantsOf returns the keys that take part in the window that ends at a bucket.
func (d *dynamicWindow) participantsOf(at int64) *participants {
	d.prepare()
	s := d.participantsAt[at]
	if s == nil {
		s = &participants{used: make([]uint64, len(d.windows)/64+1)}
		for i, w := range d.windows {
			s.set(i, w.used(at))
		}
		d.participantsAt[at] = s
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

// admits reports whether an execution of the key may begin now; see window.admits.
func (d *dynamicWindow) admits(key string, due bool) bool {
	limit, ok := d.keyLimit(key, d.now)
	return ok && d.keys[key].admits(limit, due) && d.hasCapacity(d.now)
}

// hasCapacity reports whether the executions that have begun leave one within the capacity, in the window that ends at a
// bucket.
func (d *dynamicWindow) hasCapacity(at int64) bool {
	if d.dynamic.capacity == 0 || d.dynamic.atOnce {
		return true
	}
	d.prepare()
	return d.all.started(at) < d.dynamic.capacity
}

// keyLimit returns the limit of a key in the window that ends at a bucket. ok is false if the key does not take part in it
// and cannot join, because too many others do.
func (d *dynamicWindow) keyLimit(key string, at int64) (limit int64, ok bool) {
	others := d.participantsOf(at)
	i, n := d.indexes[key], others.n
	if !others.has(i) {
		if n >= d.dynamic.keys {
			return 0, false
		}
		n++
	}
	s := d.dynamic
	if s.capacity == 0 {
		return s.max, true
	}
	limit = s.capacity / n
	if extra := s.capacity % n; extra > 0 && others.rank(i) < extra {
		limit++
	}
	return max(s.min, min(limit, s.max)), true
}

func (d *dynamicWindow) fits(key string, at int64) bool {
	if !d.hasCapacity(at) {
		return false
	}
	limit, ok := d.keyLimit(key, at)
	return ok && d.keys[key].fits(at, limit)
}

// firstFree returns the first bucket, not before from, in which there is room for the key. Reservations of other keys
// do not keep the key out: when their jobs come, their limits are smaller. Executions that have begun do.
//
// Room can come up where a bucket of any key leaves the window, and where a reservation of the key makes it take part.
func (d *dynamicWindow) firstFree(key string, from int64) int64 {
	d.prepare()
	w := d.keys[key]
	from = w.searchFrom(from)
	leaves, _ := d.all.search(from - d.buckets + 1)
	own, _ := w.search(from + 1)
	at := from
	for range maxTries {
		if d.fits(key, at) {
			break
		}
		for leaves < len(d.all.filled) && d.all.filled[leaves].at+d.buckets <= at {
			leaves++
		}
		for own < len(w.filled) && w.filled[own].at <= at {
			own++
		}
		at += d.buckets
		if leaves < len(d.all.filled) {
			at = d.all.filled[leaves].at + d.buckets
		}
		if own < len(w.filled) {
			at = min(at, w.filled[own].at)
		}
	}
	w.foundFree = at
	return at
}
