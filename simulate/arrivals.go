package simulate

import (
	"fmt"
	"iter"
	"math/rand/v2"
	"time"

	"github.com/weir-go/weir/simulate/internal/input"
)

// arrivals are the requests of a load. An open load or a recording hands them out by next, in the order of their times; a
// closed load asks draw for the key and the cost of each.
//
// The times, the keys and the costs have random numbers of their own, so that a change to one of them leaves the others
// as they are.
type arrivals struct {
	keys              Keys
	costs             Costs
	keyRand, costRand *rand.Rand
	next              func() (input.Request, bool, error) // false: there are no more
	stop              func()                              // must be called in the end
}

func newArrivals(l *Load, seed uint64) *arrivals {
	a := &arrivals{
		keys: prepared(l.Keys), keyRand: newRand(seed, keyStream),
		costs: prepared(l.Cost), costRand: newRand(seed, costStream),
		stop: func() {},
	}
	switch {
	case l.Open != nil:
		times := newArrivalTimes(l.Open, l.For, seed)
		a.next = func() (input.Request, bool, error) {
			at, ok, err := times.next()
			if !ok || err != nil {
				return input.Request{}, false, err
			}
			q := a.draw()
			q.At = at
			return q, true, nil
		}
	case l.Recording != nil:
		a.next, a.stop = recorded(l.Recording, l.For)
	}
	return a
}

// draw returns a request with a key and a cost, and without a time.
func (a *arrivals) draw() input.Request {
	q := input.Request{Cost: 1}
	if a.keys != nil {
		q.Key = a.keys.Key(a.keyRand)
	}
	if a.costs != nil {
		q.Cost = a.costs.Cost(a.costRand)
	}
	return q
}

// recorded returns a function that returns the requests of a recording before the end, one by one. If the end is that of the
// recording, or later, these are all.
func recorded(r *Recording, end time.Duration) (next func() (input.Request, bool, error), stop func()) {
	pull, stop := iter.Pull2(r.all())
	return func() (input.Request, bool, error) {
		q, err, ok := pull()
		if !ok || err != nil || end < r.Length && q.At >= end {
			return input.Request{}, false, err
		}
		return q, true, nil
	}, stop
}

// prepared returns v, or what v makes of itself to be faster in many calls.
func prepared[T any](v T) T {
	if p, ok := any(v).(interface{ prepared() T }); ok {
		return p.prepared()
	}
	return v
}

// The purposes that random numbers have.
const (
	timeStream = iota + 1
	keyStream
	costStream
	serviceStream // of each call
	requestStream // of each request
	clientStream  // of each client of a closed load
)

// newRand returns the random numbers of a seed for one purpose.
func newRand(seed, stream uint64) *rand.Rand {
	// Two PCGs whose seeds differ in a few bits have outputs that resemble each other at first.
	return rand.New(rand.NewPCG(scramble(seed), scramble(scramble(seed)+stream)))
}

// reseed makes pcg begin the random numbers of a seed for one purpose and one of many things that have it.
func reseed(pcg *rand.PCG, seed, stream, of uint64) {
	pcg.Seed(scramble(scramble(seed)+stream), scramble(scramble(seed+stream)+of))
}

// scramble is the finalizer of SplitMix64, a permutation in which each bit of the result depends on all bits of x.
func scramble(x uint64) uint64 {
	x += 0x9e3779b97f4a7c15
	x = (x ^ x>>30) * 0xbf58476d1ce4e5b9
	x = (x ^ x>>27) * 0x94d049bb133111eb
	return x ^ x>>31
}

// arrivalTimes are the times of an open load. Arrival n, counted from 0, is at the last nanosecond at which the rate has at
// most n arrivals. In a Poisson process, the sum of n+1 random numbers with an exponential distribution stands for n.
type arrivalTimes struct {
	rate    Rate
	end     time.Duration
	total   float64    // how many arrive until the end
	poisson *rand.Rand // nil: evenly spaced
	number  float64
	at      time.Duration // of the previous arrival
	before  float64       // how many arrive until then
	gap     time.Duration // between the two previous arrivals
	begun   bool
}

func newArrivalTimes(o *Open, end time.Duration, seed uint64) *arrivalTimes {
	t := &arrivalTimes{rate: prepared(o.Rate), end: end}
	t.total = t.rate.Arrivals(end)
	if o.Poisson {
		t.poisson = newRand(seed, timeStream)
	}
	return t
}

func (t *arrivalTimes) next() (time.Duration, bool, error) {
	switch {
	case t.poisson != nil:
		t.number += t.poisson.ExpFloat64()
	case t.begun:
		t.number++
	}
	t.begun = true
	if !(t.total <= maxArrivals) {
		return 0, false, fmt.Errorf("simulate: the Rate has %v arrivals in %v, which are too many", t.total, t.end)
	}
	if t.total <= t.number {
		return 0, false, nil
	}
	t.advance()
	return t.at, true, nil
}

// Beyond maxArrivals a float64 cannot count.
const maxArrivals = 1 << 53

// advance moves at to the last nanosecond at which no more than number requests have arrived. That is before the end.
func (t *arrivalTimes) advance() {
	from := t.at
	low, atLow := t.at, t.before // not above number
	high, atHigh := t.end, t.total
	for step := max(2*t.gap, 1); step < high-low; step *= 2 { // the next arrival is about as far away as the last one was
		n := t.rate.Arrivals(low + step)
		if n > t.number {
			high, atHigh = low+step, n
			break
		}
		low, atLow = low+step, n
	}
	for try := 0; high-low > 1; try++ {
		middle := low + (high-low)/2
		if try%3 < 2 { // nearly all rates are nearly even between low and high
			part := (t.number - atLow) / (atHigh - atLow) * float64(high-low)
			middle = low + time.Duration(min(max(part, 1), float64(high-low-1)))
		}
		if n := t.rate.Arrivals(middle); n > t.number {
			high, atHigh = middle, n
		} else {
			low, atLow = middle, n
		}
	}
	t.at, t.before, t.gap = low, atLow, low-from
}
