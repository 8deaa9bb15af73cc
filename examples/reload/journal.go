package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A journal counts, and says what happens.
type journal struct {
	out   io.Writer
	began time.Time

	mu       sync.Mutex
	count    int     // admitted
	lastTold int     // of them, told of already
	failures []error // calls that failed
	wished   time.Duration
	phases   []phase
}

// A phase is the time in which one limit was in force.
type phase struct {
	since  time.Time
	period time.Duration // a token in each
}

func (j *journal) say(format string, args ...any) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.print(format, args...)
}

func (j *journal) print(format string, args ...any) {
	fmt.Fprintf(j.out, "%5.1fs  %s\n", time.Since(j.began).Seconds(), fmt.Sprintf(format, args...))
}

func (j *journal) admitted() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.count++
}

func (j *journal) failed(err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.failures = append(j.failures, err)
}

// wish notes what will be in force when the file has been read.
func (j *journal) wish(period time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.wished = period
}

// ConfigReloaded is called by the watcher for each version of the file.
func (j *journal) ConfigReloaded(at time.Time, err error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if err != nil {
		j.print("refused, and nothing changes:\n%v", err)
		return
	}
	if len(j.phases) == 0 {
		j.wished = 50 * time.Millisecond
	}
	j.phases = append(j.phases, phase{at, j.wished})
	j.print("in force: what the file says")
}

// every tells what was admitted, at each interval.
func (j *journal) every(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			j.mu.Lock()
			j.print("%3d admitted in the last second", j.count-j.lastTold)
			j.lastTold = j.count
			j.mu.Unlock()
		}
	}
}

// conclude compares what was admitted with what the limits allowed.
func (j *journal) conclude(compare bool) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.print("%d calls failed", len(j.failures))
	if err := errors.Join(j.failures...); err != nil {
		return err
	}
	if !compare {
		return nil
	}
	most := j.allowed(time.Now())
	j.print("%d calls admitted; the limits that were in force allow %d", j.count, most)
	if j.count > most {
		return fmt.Errorf("%d calls too many were admitted", j.count-most)
	}
	j.print("no reload has let anybody through who was not to")
	return nil
}

// allowed is what the limits allow up to that moment: the burst once, a token in
// each period, and one for the line of the grid with which each phase may begin.
func (j *journal) allowed(until time.Time) int {
	most := burst
	for i, p := range j.phases {
		end := until
		if i+1 < len(j.phases) {
			end = j.phases[i+1].since
		}
		most += 1 + int(end.Sub(p.since)/p.period)
	}
	return most
}
