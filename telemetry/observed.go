package telemetry

import (
	"slices"
	"sync"
)

// observed are the objects that collections ask, by name. The zero value has none.
type observed[T any] struct {
	mu  sync.Mutex
	all []*namedObject[T] // those of one name stand together, the oldest first
}

type namedObject[T any] struct {
	name   string
	object T
}

// add adds an object until stop is called. A name keeps its place as long as it has an object, so that replacing a limiter does not
// move its name beyond the bound on series.
func (o *observed[T]) add(name string, object T) (stop func()) {
	added := &namedObject[T]{name, object}
	o.mu.Lock()
	defer o.mu.Unlock()
	at := len(o.all)
	for at > 0 && o.all[at-1].name != name {
		at--
	}
	if at == 0 {
		at = len(o.all)
	}
	o.all = slices.Insert(o.all, at, added)
	return func() {
		o.mu.Lock()
		defer o.mu.Unlock()
		o.all = slices.DeleteFunc(o.all, func(other *namedObject[T]) bool { return other == added })
	}
}

// newest returns the newest object of each name.
func (o *observed[T]) newest() (newest []*namedObject[T]) {
	o.mu.Lock()
	defer o.mu.Unlock()
	for i, each := range o.all {
		if i+1 == len(o.all) || o.all[i+1].name != each.name {
			newest = append(newest, each)
		}
	}
	return newest
}
