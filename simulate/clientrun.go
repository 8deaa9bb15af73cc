package simulate

import (
	"container/heap"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/internal/deterministic"
	"github.com/weir-go/weir/internal/saturate"
	"github.com/weir-go/weir/pipeline"
	"github.com/weir-go/weir/simulate/internal/bubble"
	"github.com/weir-go/weir/simulate/internal/input"
	"github.com/weir-go/weir/strategies/retry"
)

// A client is a goroutine that executes requests, one after the other.
type client struct {
	run     *run
	task    *task
	request request
	pcg     rand.PCG
	random  *deterministic.Source // of pcg
	ctx     context.Context
	cancel  context.CancelFunc
	serve   func(context.Context) error

	// Of a closed load:
	think *rand.Rand // how long it thinks
	key   *string    // of all its requests; nil: each has its own
}

// newClient makes a client and starts its goroutine, which waits for its turn and then calls do, again and again.
func (r *run) newClient(do func(*client)) *client {
	c := &client{run: r, serve: r.service.serve}
	c.task = newTask(&r.turns, &c.request)
	c.random = &deterministic.Source{Rand: rand.New(&c.pcg)}
	ctx, cancel := context.WithCancel(context.Background())
	c.ctx = deterministic.WithRandom(context.WithValue(ctx, deterministic.TurnKey{}, c.task), c.random)
	c.cancel = cancel
	r.clients = append(r.clients, c)
	go func() {
		err := errors.New("simulate: a function of the scenario or of its pipelines ended its goroutine")
		defer func() {
			if p := recover(); p != nil {
				err = panicked(p)
			}
			if err != nil {
				c.task.Take() // which returns only while the run goes on
				r.fail(err)
				r.inFlight--
			}
		}()
		for range c.task.resume {
			do(c)
		}
		err = nil
	}()
	return c
}

func (c *client) begin(number int64, key string, cost int) {
	r := c.run
	c.request.number, c.request.key, c.request.cost, c.request.served = number, key, cost, 0
	c.request.counts = r.countsOf(key)
	reseed(&c.pcg, r.scenario.Seed, requestStream, uint64(number))
}

// do executes the pipeline until the request succeeds or the client gives up. The client has the turn.
func (c *client) do() {
	r := c.run
	p := r.pipelines[c.request.number%int64(len(r.pipelines))]
	r.began()
	for attempt := 0; ; attempt++ {
		r.offers(&c.request, attempt)
		c.task.permits = noPermits
		err := c.execute(p)
		c.task.Take()
		r.ended(&c.request, err)
		delay, again := c.reaction(err, attempt)
		if !again {
			r.gone(&c.request, err, r.ending && err != nil)
			return
		}
		r.schedule(event{at: saturate.Add(r.now(), delay), task: c.task})
		c.task.await()
		if r.ending {
			r.gone(&c.request, err, true)
			return
		}
	}
}

// execute executes the pipeline once, for as long as a client waits.
func (c *client) execute(p *pipeline.Pipeline) error {
	ctx := c.ctx
	if d := c.run.scenario.Clients.Timeout; d > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, d)
		defer cancel()
	}
	return p.Execute(ctx, c.serve)
}

// reaction returns what the client does after an execution that ended with err: it tries again after a delay, or does not.
func (c *client) reaction(err error, attempt int) (delay time.Duration, again bool) {
	o := &c.run.scenario.Clients.OnFailure
	if isRejection(err) {
		o = &c.run.scenario.Clients.OnRejection
	}
	if err == nil || attempt >= o.MaxRetries || c.run.ending {
		return 0, false
	}
	delay = o.delay(attempt, c.random.Rand)
	if asked, ok := pipeline.RetryAfter(err); ok && o.RetryAfter {
		if o.Jitter { // as strategies/retry does
			asked = saturate.Add(asked, delay/4)
		}
		delay = max(delay, asked)
	}
	return delay, true
}

// delay returns the delay after an attempt, which is counted from 0.
func (o *Reaction) delay(attempt int, r *rand.Rand) time.Duration {
	d := o.Delay
	switch o.Backoff {
	case retry.Linear:
		d = saturate.Mul(d, time.Duration(attempt)+1)
	case retry.Exponential:
		d = saturate.Mul(d, 1<<min(attempt, 62))
	}
	if o.MaxDelay > 0 {
		d = min(d, o.MaxDelay)
	}
	if o.Jitter && d > 0 {
		d = time.Duration(r.Int64N(int64(d))) + 1
	}
	return d
}

// Each request begins some nanoseconds later than the load says, its phase, so that its timers do not fire at the instant of
// those of other requests or of a limiter. There are 997 phases: a prime, so that a load with a period meets all of them.
const phases = 997

// begin begins the load. next is the first arrival of an open load; without one it is nil.
func (r *run) begin() (next *input.Request, err error) {
	load := &r.scenario.Load
	cut := saturate.Add(load.For, max(load.For, time.Minute))
	r.schedule(event{at: cut, do: r.cut})
	r.arrivals = newArrivals(load, r.scenario.Seed)
	if load.Closed == nil {
		return r.nextArrival()
	}
	r.beginClosed(load)
	return nil, nil
}

// nextArrival returns the next arrival of an open load, or nil after the last one.
func (r *run) nextArrival() (*input.Request, error) {
	last := r.next.At
	q, ok, err := r.arrivals.next()
	if err != nil || !ok {
		return nil, err
	}
	q.At = max(last+1, saturate.Add(q.At, time.Duration(1+r.numbers%phases)))
	r.next = q
	return &r.next, nil
}

func (r *run) arrive(q *input.Request) error {
	if err := r.enter(); err != nil {
		return err
	}
	var c *client
	if n := len(r.idle); n > 0 {
		c = r.idle[n-1]
		r.idle = r.idle[:n-1]
	} else {
		c = r.newClient(func(c *client) {
			c.do()
			r.inFlight--
			r.idle = append(r.idle, c)
		})
	}
	c.begin(r.numbers, q.Key, q.Cost)
	r.numbers++
	r.give(c.task)
	return nil
}

func (r *run) enter() error {
	r.inFlight++
	if r.inFlight > r.scenario.MaxInFlight {
		return fmt.Errorf("simulate: more than %d requests are in flight after %v: a Timeout of the Clients or of the pipeline would bound them, or set MaxInFlight", r.scenario.MaxInFlight, r.now())
	}
	return nil
}

// beginClosed starts the clients of a closed load. Each thinks first.
func (r *run) beginClosed(load *Load) {
	for i := range load.Closed.Clients {
		r.inFlight++
		c := r.newClient(r.closedClient)
		c.request.number = int64(i) // orders the clients before they have a request
		var pcg rand.PCG
		reseed(&pcg, r.scenario.Seed, clientStream, uint64(i))
		c.think = rand.New(&pcg)
		c.pause()
	}
}

// pause lets c think. A client whose next request would come after the load's duration leaves.
func (c *client) pause() {
	r := c.run
	d := max(r.scenario.Load.Closed.Think.Duration(c.think), time.Microsecond)
	at := saturate.Add(saturate.Add(r.now(), d), time.Duration(1+c.think.IntN(phases)))
	if r.ending || at >= r.scenario.Load.For {
		r.inFlight--
		return
	}
	r.schedule(event{at: at, task: c.task})
}

// closedClient is a client of a closed load: it has a turn after it has thought.
func (r *run) closedClient(c *client) {
	q := r.arrivals.draw()
	if r.scenario.Load.Closed.SameKey {
		if c.key == nil {
			c.key = &q.Key
		}
		q.Key = *c.key
	}
	c.begin(r.numbers, q.Key, q.Cost)
	r.numbers++
	c.do()
	c.pause()
}

// afterCut is how long requests have to end when they are cut off.
const afterCut = 10 * time.Minute

// cut cancels executions, one client after the other, and then wakes the clients that wait to try again.
func (r *run) cut() {
	r.ending = true
	for _, c := range r.clients {
		c.cancel()
		bubble.Wait()
	}
	for _, e := range r.events { // those of one instant keep their order
		if e.task != nil {
			e.at = min(e.at, r.now())
		}
	}
	heap.Init(&r.events)
	r.schedule(event{at: r.now() + afterCut, do: func() {
		r.fail(fmt.Errorf("simulate: %d requests do not end although their contexts have", r.inFlight))
	}})
}

// stop ends the goroutines of the clients, wherever they are.
func (r *run) stop() error {
	r.end()
	r.ending = true
	for _, c := range r.clients {
		c.cancel()
		c.task.close()
	}
	if r.arrivals != nil { // nil if the Config has failed
		r.arrivals.stop()
	}
	return nil
}
