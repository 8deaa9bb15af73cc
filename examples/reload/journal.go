package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// A journal counts calls and prints what happens.
type journal struct {
	out   io.Writer
	began time.Time

	mu       sync.Mutex
	count    int           // admitted
	printed  int           // the count at the last line of every
	failures []error       // of calls
	next     time.Duration // the period in the file
	phases   []phase
}

// A phase is a time in which one limit was in force.
type phase struct {
	since  time.Time
	period time.Duration // of a token
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

// edited records the period that will be in force when the file has been read.
func (j *journal) edited(period time.Duration) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.next = period
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
		j.next = 50 * time.Millisecond
	}
	j.phases = append(j.phases, phase{at, j.next})
	j.print("the file is in force")
}

// every prints at each interval how many calls were admitted.
func (j *journal) every(ctx context.Context, interval time.Duration) {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
			j.mu.Lock()
			j.print("%3d admitted in the last second", j.count-j.printed)
			j.printed = j.count
			j.mu.Unlock()
		}
	}
}

// conclude compares the number of admitted calls with what the limits allowed.
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
	j.print("no reload has admitted a call too many")
	return nil
}

// allowed returns how many calls the limits allow up to that time: the burst once, a
// token in each period, and one more for each phase, because a period may end right at
// its beginning.
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
