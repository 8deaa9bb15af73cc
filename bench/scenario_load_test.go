package bench

import (
	"sync"
	"time"
)

// A load says how the requests come.
type load struct {
	name        string
	connections int // of each instance
	skews       []time.Duration
	short       time.Duration // how long each rate lasts in the short form
	// send sends requests for so long, and returns when all are answered. ask asks for the nth.
	send func(rate int, start time.Time, length time.Duration, ask func(n int))
}

var loads = []load{
	// At even distances.
	{"evenly", 4, []time.Duration{
		0, time.Second, -time.Second, 10 * time.Second, -10 * time.Second, 30 * time.Second, -30 * time.Second,
	}, 700 * time.Millisecond, sendEvenly}, // the three last until a second permit is there
	// All of a second in one go, as if a user had opened a page with a hundred pictures.
	{"in bursts", 32, []time.Duration{0}, 300 * time.Millisecond, sendBursts},
	// From as many clients as the rate says, each of which asks again as soon as it has its answer.
	{"without a pause", 32, []time.Duration{0}, 300 * time.Millisecond, sendWithoutPause},
}

func sendEvenly(rate int, start time.Time, length time.Duration, ask func(n int)) {
	distance := time.Second / time.Duration(rate)
	sendAt(func(n int) time.Duration { return time.Duration(n) * distance }, start, length, ask)
}

// sendBursts waits a little more than a second between two bursts: every other then finds the user free, and all of
// its requests race for one permit.
func sendBursts(rate int, start time.Time, length time.Duration, ask func(n int)) {
	sendAt(func(n int) time.Duration { return time.Duration(n/rate) * 1050 * time.Millisecond }, start, length, ask)
}

// sendAt sends each request when it is due, however long those before it take.
func sendAt(due func(n int) time.Duration, start time.Time, length time.Duration, ask func(n int)) {
	var wg sync.WaitGroup
	defer wg.Wait()
	for n := 0; due(n) < length; n++ {
		time.Sleep(time.Until(start.Add(due(n)))) // in real time: there is a server in it
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
