package simulate

import (
	"context"
	"math/rand/v2"
	"runtime"
	"slices"
	"time"

	"github.com/weir-go/weir/internal/saturate"
)

// serving is the [Service] of a run.
type serving struct {
	run     *run
	options *Service
	pcg     rand.PCG
	random  *rand.Rand // of pcg
	running int        // calls that are served
	queue   []*call    // calls that wait, some of which may have left
	waiting int        // of them, how many have not left
}

type call struct {
	task *task
	err  error
	left bool // the caller has given up
	ran  bool // it is or was served
	over bool // it has ended
}

func newServing(r *run, options *Service) *serving {
	s := &serving{run: r, options: options}
	s.random = rand.New(&s.pcg)
	for _, p := range options.Periods {
		for _, at := range []time.Duration{p.From, p.To} { // calls that wait are served when there is more capacity
			r.schedule(event{at: at, do: s.next})
		}
	}
	return s
}

func (s *serving) now() (latency Durations, capacity int, failureRate float64) {
	latency, capacity, failureRate = s.options.Latency, s.options.Capacity, s.options.FailureRate
	now := s.run.now()
	for _, p := range s.options.Periods {
		if p.From > now || now >= p.To {
			continue
		}
		latency, capacity, failureRate = s.options.Latency, s.options.Capacity, s.options.FailureRate
		if p.FailureRate != nil {
			failureRate = *p.FailureRate
		}
		if p.Capacity > 0 {
			capacity = p.Capacity
		}
		if p.Latency != nil {
			latency = p.Latency
		}
	}
	return latency, capacity, failureRate
}

// serve is the callback of every execution: it calls the service. The task of ctx has the turn.
func (s *serving) serve(ctx context.Context) error {
	t := taskOf(ctx)
	s.run.calls(t)
	if s.options.QueueLimit != 0 && s.waiting >= max(s.options.QueueLimit, 0) && !s.idle() {
		return errFull
	}
	c := &call{task: t}
	s.queue = append(s.queue, c)
	s.waiting++
	s.run.inService(1)
	s.next()
	select {
	case _, ok := <-t.resume: // with the turn
		if !ok {
			runtime.Goexit()
		}
		return c.err
	case <-ctx.Done():
		t.Take()
		s.leave(c)
		return context.Cause(ctx)
	}
}

// idle reports whether a call that comes now is served at once.
func (s *serving) idle() bool {
	_, capacity, _ := s.now()
	return s.waiting == 0 && (capacity == 0 || s.running < capacity)
}

// next begins to serve calls that wait, as long as there is capacity.
func (s *serving) next() {
	for len(s.queue) > 0 {
		latency, capacity, failureRate := s.now()
		if capacity > 0 && s.running >= capacity {
			return
		}
		c := s.queue[0]
		s.queue[0] = nil
		s.queue = s.queue[1:]
		if c.over {
			continue
		}
		s.waiting--
		s.running++
		c.ran = true
		r := c.task.request
		r.served++
		reseed(&s.pcg, s.run.scenario.Seed, serviceStream, uint64(r.number)<<16+uint64(r.served))
		took := time.Duration(0)
		if latency != nil {
			took = max(latency.Duration(s.random), 0)
		}
		s.run.serves(took)
		if s.random.Float64() < failureRate {
			c.err = errFailed
		}
		s.run.schedule(event{at: saturate.Add(s.run.now(), took), do: func() { s.answer(c) }})
	}
	s.queue = nil
}

// answer ends a call and gives its caller the turn, unless that has given up.
func (s *serving) answer(c *call) {
	left := c.left
	s.end(c)
	if !left {
		s.run.give(c.task)
	}
}

// leave is called when the caller of c has given up.
func (s *serving) leave(c *call) {
	c.left = true
	if s.options.StopsCanceled {
		s.end(c)
	}
}

// end ends a call, and begins to serve the next one. It does not wake the caller: only the main goroutine gives turns.
func (s *serving) end(c *call) {
	if c.over {
		return
	}
	c.over = true
	if c.ran {
		s.running--
	} else {
		s.waiting--
		if len(s.queue) > 2*s.waiting+64 {
			s.queue = slices.DeleteFunc(s.queue, func(c *call) bool { return c.over })
		}
	}
	s.run.inService(-1)
	s.next()
}
