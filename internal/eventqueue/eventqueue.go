// Package eventqueue hands events to a function of the program.
package eventqueue

import (
	"sync"

	"github.com/weir-go/weir/internal/recovered"
)

// A Queue hands events to a function, one after the other. It has a goroutine while there are events. Code that adds an
// event never waits for the function, so the function can call the code that reports events to it.
type Queue[E any] struct {
	hook   string
	handle func(E)

	mu      sync.Mutex
	events  []E
	running bool
}

// maxEvents bounds how many events wait for a function that does not return.
const maxEvents = 10_000

// New returns a Queue for the function handle; hook names it in the log if it panics. If handle is nil, events are
// dropped.
func New[E any](hook string, handle func(E)) *Queue[E] { return &Queue[E]{hook: hook, handle: handle} }

// Add appends an event. While 10,000 events wait, further ones are dropped.
func (q *Queue[E]) Add(e E) {
	if q.handle == nil {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.events) < maxEvents {
		q.events = append(q.events, e)
	}
	if !q.running {
		q.running = true
		go q.run()
	}
}

func (q *Queue[E]) run() {
	for {
		q.mu.Lock()
		events := q.events
		q.events = nil
		q.running = len(events) > 0
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
		recovered.Call(q.hook, func() { q.handle(events[i]) })
	}
	return true
}
