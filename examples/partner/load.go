package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// user is whose items the requests are about.
const user = "user-1"

// A target is an instance that gets a load of its own.
type target struct{ name, url string }

// A load is what is sent, and what becomes of it. Each target gets all GETs of the demo and a POST a second. A request is sent
// when it is due, whether earlier requests have an answer or not, as users do who do not know of each other.
type load struct {
	targets []target
	length  time.Duration
	client  *http.Client
	out     io.Writer

	start time.Time
	clock time.Time // PostgreSQL's, before the first GET

	mu      sync.Mutex
	sent    []int // GETs by target
	samples []sample
}

// A sample is a request with its answer. Times count from the start of the load.
type sample struct {
	target              int
	post                bool
	due, sent, answered time.Duration
	rejected            bool
	failure             string    // why the request was neither granted nor rejected; "" if it was
	now                 time.Time // of a success: the clock of PostgreSQL, after the limiter's decision
}

func newLoad(out io.Writer) *load {
	// The timeout is longer than a call of the limiter, so that the instance can say what went wrong.
	return &load{out: out, client: &http.Client{
		Timeout: 2 * callTimeout, Transport: &http.Transport{MaxIdleConnsPerHost: 2000, DisableCompression: true},
	}}
}

// A stage of a load has so many thirtieths of its length. Its rate changes evenly from the first to the last, in requests a second.
type stage struct{ parts, first, last float64 }

// stages are those of the demo: 5 requests a second, then rising to 50, then 100.
var stages = []stage{{9, 5, 5}, {9, 5, 50}, {12, 100, 100}}

// gets returns when each GET is due.
func (l *load) gets() (due []time.Duration) {
	began, n := 0.0, 0.0 // n is how far into the stage the next request is
	for _, s := range stages {
		length := l.length.Seconds() * s.parts / 30
		requests := (s.first + s.last) / 2 * length
		for ; n < requests-1e-6; n++ {
			at := n / s.first
			if slope := (s.last - s.first) / length; slope != 0 { // the solution of first·t + slope/2·t² = n
				at = (math.Sqrt(s.first*s.first+2*slope*n) - s.first) / slope
			}
			due = append(due, time.Duration((began+at)*1e9))
		}
		n -= requests
		began += length
	}
	return due
}

// posts returns when each POST but the first is due, which tells the time by PostgreSQL's clock.
func (l *load) posts() (due []time.Duration) {
	for at := time.Second; at < l.length; at += time.Second {
		due = append(due, at)
	}
	return due
}

// measure runs the load, prints its table and the verdict, and returns errTooMany if the limit did not hold. If ctx ends before
// the load does, the verdict is about what was answered by then.
func (l *load) measure(ctx context.Context) error {
	defer l.client.CloseIdleConnections()
	l.sent, l.start = make([]int, len(l.targets)), time.Now()
	for i, t := range l.targets { // one that does not answer is an error now, not a table of errors later
		s := l.ask(ctx, i, true, time.Since(l.start))
		if s.failure != "" {
			return fmt.Errorf("instance %s: POST %s/items/create: %s", t.name, t.url, s.failure)
		}
		if l.samples = append(l.samples, s); l.clock.IsZero() || s.now.Before(l.clock) {
			l.clock = s.now
		}
	}
	gets, posts := l.gets(), l.posts()
	fmt.Fprintf(l.out, "Each gets %d GET /items/{user} in %v, of which one can succeed every %v, and %d POST /items/create.\n",
		len(gets), l.length, interval, 1+len(posts))
	l.start = time.Now()
	var sending sync.WaitGroup
	for i := range l.targets {
		sending.Go(func() { l.send(ctx, i, false, gets) })
		sending.Go(func() { l.send(ctx, i, true, posts) })
	}
	sent := make(chan struct{})
	go func() { sending.Wait(); close(sent) }()
	l.follow(sent)
	return errors.Join(l.conclude(), context.Cause(ctx))
}

// send sends requests to one target when they are due, and returns when all are answered.
func (l *load) send(ctx context.Context, target int, post bool, when []time.Duration) {
	var open sync.WaitGroup
	defer open.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, due := range when {
		timer.Reset(time.Until(l.start.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if !post {
			l.mu.Lock()
			l.sent[target]++
			l.mu.Unlock()
		}
		open.Go(func() {
			s := l.ask(ctx, target, post, due)
			l.mu.Lock()
			defer l.mu.Unlock()
			if ctx.Err() == nil {
				l.samples = append(l.samples, s)
			}
		})
	}
}

// ask sends a request and returns what became of it.
func (l *load) ask(ctx context.Context, target int, post bool, due time.Duration) sample {
	s := sample{target: target, post: post, due: due, sent: time.Since(l.start)}
	s.failure = l.exchange(ctx, &s)
	s.answered = time.Since(l.start)
	return s
}

// exchange returns the failure, by the name by which it is counted.
func (l *load) exchange(ctx context.Context, s *sample) (failure string) {
	method, path, body := http.MethodGet, "/items/"+user, []byte(nil)
	if s.post {
		method, path = http.MethodPost, "/items/create"
		body, _ = json.Marshal(map[string]string{"user": user, "name": "an item"}) // cannot fail
	}
	r, err := http.NewRequestWithContext(ctx, method, l.targets[s.target].url+path, bytes.NewReader(body))
	if err != nil {
		return err.Error()
	}
	resp, err := l.client.Do(r)
	if errors.Is(err, context.DeadlineExceeded) {
		return noAnswer
	}
	if err != nil { // without the method and the URL
		return strings.TrimSpace(err.Error()[strings.LastIndex(err.Error(), ": ")+1:])
	}
	defer resp.Body.Close()
	var a answer
	switch resp.StatusCode {
	case http.StatusOK, http.StatusCreated:
		err = json.NewDecoder(resp.Body).Decode(&a)
		s.now = a.Now
	case http.StatusTooManyRequests:
		s.rejected = true
		_, err = io.Copy(io.Discard, resp.Body)
	default:
		return cmp.Or(resp.Header.Get(limiterError), fmt.Sprintf("status %d", resp.StatusCode))
	}
	if err != nil {
		return "an answer that is not from this program"
	}
	return ""
}

// noAnswer is the failure of a request that took longer than the client's timeout.
const noAnswer = "no answer"

// explanations say what a failure means: PostgreSQL's codes, and names of this program.
var explanations = map[string]string{
	"55P03":   "another request holds the user's row at this moment, so this one is refused, even if the limit has room",
	"40P01":   "a deadlock: two inserts wait for each other, until PostgreSQL ends one after deadlock_timeout",
	undecided: "the limiter has not decided within " + callTimeout.String() + "; each request waits for others that wait",
	noAnswer:  "the instance has not answered within " + (2 * callTimeout).String(),
	storeAway: "PostgreSQL has not answered weir in time, and the limiter rejects what it cannot decide",
}

// follow prints a row at the end of each sixtieth of the load until all requests are answered.
func (l *load) follow(sent <-chan struct{}) {
	first := "       "
	for _, t := range l.targets {
		first += fmt.Sprintf("  -- %-25s", t.name)
	}
	fmt.Fprintf(l.out, "ok: granted; 429: rejected; fail: neither; open: no answer yet; ok so far: all successes, and how many are allowed by then\n\n")
	fmt.Fprintf(l.out, "%s\n   time%s    ok so far\n", strings.TrimRight(first, " "), strings.Repeat("   sent   ok   429  fail  open", len(l.targets)))
	shown, before := 0, make([]int, len(l.targets))
	every := max(l.length/60, 10*time.Millisecond)
	for end, more := every, true; more; end += every {
		select {
		case <-time.After(time.Until(l.start.Add(end))):
		case <-sent:
			end, more = time.Since(l.start), false
		}
		l.mu.Lock()
		row := fmt.Sprintf("%6.1fs", end.Seconds())
		for target := range l.targets {
			var ok, rejected, failed, answered int
			for i, s := range l.samples {
				switch {
				case s.post || s.target != target:
					continue
				case i < shown:
				case s.failure != "":
					failed++
				case s.rejected:
					rejected++
				default:
					ok++
				}
				answered++
			}
			sent := l.sent[target]
			row += fmt.Sprintf("%7d%5d%6d%6d%6d", sent-before[target], ok, rejected, failed, sent-answered)
			before[target] = sent
		}
		shown = len(l.samples)
		fmt.Fprintf(l.out, "%s%7d of %d\n", row, len(granted(l.samples)), allowed(end-1))
		l.mu.Unlock()
	}
}

// granted returns the GETs that have succeeded.
func granted(samples []sample) (all []sample) {
	for _, s := range samples {
		if !s.post && s.failure == "" && !s.rejected {
			all = append(all, s)
		}
	}
	return all
}

// allowed returns how many requests of a user the limit allows in a time: one at once, and one for each interval that has
// passed.
func allowed(d time.Duration) int { return 1 + int(max(d, 0)/interval) }

// errTooMany is the error of a run in which a limiter has granted more than its limit.
var errTooMany = errors.New("the limiter has granted more than the limit allows")

// A verdict compares the successes with the limit.
type verdict struct {
	granted, allowed int
	excess           int // by how many the successes were above the limit when they were most, by PostgreSQL's clock
	tooClose         int // successes that came too soon after another
}

// closest is the shortest allowed time from sending a request that succeeds to the answer of the next: two decisions are not
// further apart. The clock of this program may run a thousandth faster or slower than PostgreSQL's while that is being set.
const closest = interval - tick - interval/1000

func judge(samples []sample, clock time.Time) verdict {
	v := verdict{allowed: 1}
	all := granted(samples)
	slices.SortFunc(all, func(a, b sample) int { return a.now.Compare(b.now) })
	for i, s := range all {
		v.granted, v.allowed = i+1, allowed(s.now.Sub(clock)+tick)
		v.excess = max(v.excess, v.granted-v.allowed)
	}
	slices.SortFunc(all, func(a, b sample) int { return cmp.Compare(a.answered, b.answered) })
	for i := 1; i < len(all); i++ {
		if all[i].answered-all[i-1].sent < closest {
			v.tooClose++
		}
	}
	return v
}

// conclude prints the verdict.
func (l *load) conclude() error {
	times, failures, gets, undecided := map[string][]time.Duration{}, map[string]int{}, 0, 0
	for _, s := range l.samples {
		name := "GET "
		if s.post {
			name = "POST "
		} else if gets++; s.failure != "" {
			undecided++
		}
		switch {
		case s.failure != "":
			failures[s.failure]++
			name += "failed"
		case s.rejected:
			name += "rejected"
		default:
			name += "granted"
		}
		times[name] = append(times[name], s.answered-s.sent)
		times["sent late by"] = append(times["sent late by"], s.sent-s.due)
	}
	fmt.Fprintf(l.out, "\n%-14s%8s%11s%11s%11s\n", "", "count", "p50", "p99", "max")
	for _, name := range slices.Sorted(maps.Keys(times)) {
		all := slices.Sorted(slices.Values(times[name]))
		fmt.Fprintf(l.out, "%-14s%8d", name, len(all))
		for _, i := range []int{len(all) / 2, len(all) * 99 / 100, len(all) - 1} {
			fmt.Fprintf(l.out, "%11v", all[i].Round(10*time.Microsecond))
		}
		fmt.Fprintln(l.out)
	}
	for _, name := range slices.Sorted(maps.Keys(failures)) {
		fmt.Fprintf(l.out, "%d × %s: %s.\n", failures[name], name, cmp.Or(explanations[name], "the request was neither granted nor rejected"))
	}
	v := judge(l.samples, l.clock)
	fmt.Fprintf(l.out, "\n%d successes, and %d are allowed until the last of them, by PostgreSQL's clock. %d of %d requests had no decision.\n",
		v.granted, v.allowed, undecided, gets)
	if v.excess > 0 || v.tooClose > 0 {
		return fmt.Errorf("%w: by up to %d, and %d successes came less than %v after another", errTooMany, v.excess, v.tooClose, interval)
	}
	fmt.Fprintln(l.out, "The limit held.")
	return nil
}
