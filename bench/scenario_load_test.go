package bench

import (
	"sync"
	"time"
)

// A load is a way in which requests come.
type load struct {
	name        string
	connections int // of each instance
	skews       []time.Duration
	short       time.Duration // how long each rate lasts in the short form
	// send sends requests for length, and returns when all are answered. It calls ask for the nth request.
	send func(rate int, start time.Time, length time.Duration, ask func(n int))
}

var loads = []load{
	// At equal intervals. The three rates last until a second permit is there.
	{"evenly", 4, []time.Duration{
		0, time.Second, -time.Second, 10 * time.Second, -10 * time.Second, 30 * time.Second, -30 * time.Second,
	}, 700 * time.Millisecond, sendEvenly},
	// All requests of a second at once, as when a user opens a page with a hundred pictures.
	{"in bursts", 32, []time.Duration{0}, 300 * time.Millisecond, sendBursts},
	// From as many clients as the rate is. Each sends a request as soon as it has the answer to the last.
	{"without a pause", 32, []time.Duration{0}, 300 * time.Millisecond, sendWithoutPause},
}

func sendEvenly(rate int, start time.Time, length time.Duration, ask func(n int)) {
	distance := time.Second / time.Duration(rate)
	sendAt(func(n int) time.Duration { return time.Duration(n) * distance }, start, length, ask)
}

// sendBursts waits a little more than a second between two bursts. So at every other burst a permit is there, and all
// of its requests race for it.
func sendBursts(rate int, start time.Time, length time.Duration, ask func(n int)) {
	sendAt(func(n int) time.Duration { return time.Duration(n/rate) * 1050 * time.Millisecond }, start, length, ask)
}

// sendAt sends each request when it is due, even if earlier requests have no answer yet.
func sendAt(due func(n int) time.Duration, start time.Time, length time.Duration, ask func(n int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 0; due(n) < length; n++ {
		time.Sleep(time.Until(start.Add(due(n)))) // in real time, because there is a server
		wg.Go(func() { ask(n) })
	}
}

func sendWithoutPause(clients int, start time.Time, length time.Duration, ask func(n int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := range clients {
		wg.Go(func() {
			for time.Since(start) < length {
				ask(n)
			}
		})
	}
}
