// Package eventqueue hands events to a function of the program.
package eventqueue

import (
	"sync"

	"github.com/weir-go/weir/internal/recovered"
)

// A Queue hands events to a function, one after the other, from a goroutine that it has while there are any. Code that
// adds an event never waits for the function, which may use what it was told about.
type Queue[E any] struct {
	hook string
	tell func(E)

	mu      sync.Mutex
	events  []E
	telling bool
}

// most bounds how many events wait for a function that does not return.
const most = 10_000

// New returns a Queue for a function; hook names it in the log if it panics. If tell is nil, events are dropped.
func New[E any](hook string, tell func(E)) *Queue[E] { return &Queue[E]{hook: hook, tell: tell} }

// Add appends an event. While 10,000 events wait, further ones are dropped.
func (q *Queue[E]) Add(e E) {
	if q.tell == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) < most {
		q.events = append(q.events, e)
	}
	if !q.telling {
		q.telling = true
		go q.run()
	}
}

func (q *Queue[E]) run() {
	for {
		q.mu.Lock()
		events := q.events
		q.events = nil
		q.telling = len(events) > 0
		q.mu.Unlock()
		if len(events) == 0 || !q.deliver(events) {
			return
		}
	}
}

// deliver returns false if the function has ended the goroutine by runtime.Goexit: then another one delivers the rest.
func (q *Queue[E]) deliver(events []E) (all bool) {
	i := 0
	defer func() {
		if all {
			return
		}
		q.mu.Lock()
		defer q.mu.Unlock()
		q.events = append(events[i+1:], q.events...)
		go q.run()
	}()
	for ; i < len(events); i++ {
		recovered.Call(q.hook, func() { q.tell(events[i]) })
	}
	return true
}
