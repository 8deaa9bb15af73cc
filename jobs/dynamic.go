package jobs

import (
	"slices"
)

// A resource is a dynamic window: the windows of all keys that take part.
type resource struct {
	rules
	keys   map[string]*window
	now    int64
	active *active // who takes part now; nil: not computed
}

// active are the keys that take part in the window that ends now.
type active struct {
	keys    []string // sorted
	started int64    // executions of all of them
}

// takingPart returns who takes part in the window that ends at a bucket.
func (d *resource) takingPart(at int64) *active {
	if at == d.now && d.active != nil {
		return d.active
	}
	a := &active{}
	for key, w := range d.keys {
		if w.used(at) {
			a.keys = append(a.keys, key)
			a.started += w.started(at)
		}
	}
	slices.Sort(a.keys)
	if at == d.now {
		d.active = a
	}
	return a
}

// start counts an execution of the key that begins now.
func (d *resource) start(key string) {
	d.keys[key].start()
	if a := d.active; a != nil {
		a.started++
		if i, ok := slices.BinarySearch(a.keys, key); !ok {
			a.keys = slices.Insert(a.keys, i, key)
		}
	}
}

// reserve and withdraw are those of the key's window.
func (d *resource) reserve(key string, at int64) {
	d.keys[key].reserve(at)
	if at <= d.now {
		d.active = nil
	}
}

func (d *resource) withdraw(key string, at int64) {
	d.keys[key].withdraw(at)
	if at <= d.now {
		d.active = nil
	}
}

// maxTries bounds where a place is looked for when many keys take part.
const maxTries = 256

// admits reports whether an execution of the key may begin now.
func (d *resource) admits(key string, due bool) bool {
	w := d.keys[key]
	limit, ok := d.share(key, d.now)
	return ok && w.admits(limit, due) && d.room(d.now)
}

// room reports whether the capacity allows one more in the window that ends at a bucket, by what has begun already.
func (d *resource) room(at int64) bool {
	if d.dynamic.capacity == 0 || d.dynamic.atOnce {
		return true
	}
	return d.takingPart(at).started < d.dynamic.capacity
}

// share returns the limit of a key in the window that ends at a bucket, with the keys that take part in it. ok is false
// if too many others do.
func (d *resource) share(key string, at int64) (limit int64, ok bool) {
	keys := d.takingPart(at).keys
	rank, in := slices.BinarySearch(keys, key)
	n := int64(len(keys))
	if !in {
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
	if int64(rank) < s.capacity%n {
		limit++
	}
	return max(s.min, min(limit, s.max)), true
}

// firstFree returns the first bucket, not before from, in which there is a place for the key. What others have reserved
// does not keep it away: when they come, their shares are smaller. What has begun does.
func (d *resource) firstFree(key string, from int64) int64 {
	w := d.keys[key]
	free := func(at int64) bool {
		limit, ok := d.share(key, at)
		return ok && w.fits(at, limit) && d.room(at)
	}
	if free(from) {
		return from
	}
	var borders []int64 // where a bucket leaves the window
	for _, w := range d.keys {
		for _, b := range w.list {
			if at := b.at + d.buckets; at > from {
				borders = append(borders, at)
			}
		}
	}
	slices.Sort(borders)
	borders = slices.Compact(borders)
	for i, at := range borders {
		if i >= maxTries {
			return at
		}
		if free(at) {
			return at
		}
	}
	return from + d.buckets
}
