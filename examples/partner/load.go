package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"strings"
	"sync"
	"time"
)

// clientTimeout bounds a request. It is longer than a call of the limiter, so that the instance can say what went wrong.
const clientTimeout = 2 * callTimeout

// maxOpen bounds how many GETs a target has open. One that is due while so many are open is not sent.
const maxOpen = 2000

// user is whose items the requests are about.
const user = "user-1"

// A target is an instance that gets a load of its own.
type target struct{ name, url string }

// A load is what is sent, and what becomes of it. Each target gets all GETs of the demo and a POST a second. A request is sent
// when it is due, whether earlier requests have an answer or not, as users do who do not know of each other.
type load struct {
	targets []target
	length  time.Duration
	every   time.Duration     // of the table's rows
	wire    http.RoundTripper // nil: a transport for the run

	client *http.Client
	start  time.Time
	clock  time.Time // PostgreSQL's, before the first GET

	mu      sync.Mutex
	sent    []int // GETs by target
	open    []int // GETs without an answer, by target
	skipped []int // by target
	samples []sample
	shown   int             // samples that have been in a row
	sentAt  []int           // sent, as of the last row
	seen    map[string]bool // the failures that have their line
	out     io.Writer
}

// A sample is a request with its answer. Times count from the start of the load.
type sample struct {
	target              int
	post                bool
	due, sent, answered time.Duration
	status              int           // 0: there was no answer
	failure             string        // why the request was neither granted nor rejected; "" if it was
	limiter             time.Duration // what the limiter took; negative: it was not asked
	now                 time.Time     // of a success: the clock of PostgreSQL, after the limiter's decision
}

func (s *sample) succeeded() bool { return s.failure == "" && s.status != http.StatusTooManyRequests }
func (s *sample) rejected() bool  { return s.failure == "" && s.status == http.StatusTooManyRequests }

// A stage of a load has so many thirtieths of its length. Its rate changes evenly from the first to the last, in requests a second.
type stage struct{ parts, first, last float64 }

// demo is the load of the demo: 5 requests a second, then rising to 50, then 100.
var demo = []stage{{9, 5, 5}, {9, 5, 50}, {12, 100, 100}}

// gets returns when each GET is due.
func (l *load) gets() (due []time.Duration) {
	began, n := 0.0, 0.0 // n is how far into the stage the next request is
	for _, s := range demo {
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

// posts returns when each POST is due: the first tells the time by PostgreSQL's clock.
func (l *load) posts() (due []time.Duration) {
	for n := range max(1, int(math.Round(l.length.Seconds()))) {
		due = append(due, time.Duration(n)*time.Second)
	}
	return due
}

func (l *load) check() error {
	if l.length < time.Millisecond || l.length > time.Hour {
		return usage("the load must last from 1ms to 1h0m0s, got %v", l.length)
	}
	if l.every == 0 {
		l.every = max(l.length/60, 10*time.Millisecond)
	}
	if l.every < 10*time.Millisecond {
		return usage("-every must be at least 10ms, got %v", l.every)
	}
	return nil
}

// introduce prints what is sent, and where to.
func (l *load) introduce(out io.Writer) {
	for _, t := range l.targets {
		fmt.Fprintf(out, "  %s: %s, metrics at %s/metrics\n", t.name, t.url, t.url)
	}
	var stages []string
	for _, s := range demo {
		text := fmt.Sprintf("%g/s", s.first)
		if s.first != s.last {
			text = fmt.Sprintf("rising from %g/s to %g/s", s.first, s.last)
		}
		stages = append(stages, fmt.Sprintf("%s for %v", text, time.Duration(float64(l.length)*s.parts/30).Round(time.Millisecond)))
	}
	gets := len(l.gets())
	fmt.Fprintf(out, "Each gets %d GET /items/{user}: %s; and %d POST /items/create.\n", gets, strings.Join(stages, ", then "), len(l.posts()))
	fmt.Fprintf(out, "%s may have a GET every %v, so %d of %d can succeed.\n\n", user, interval, allowed(l.length-1), len(l.targets)*gets)
}

// measure runs the load with its table and prints the verdict, with what more prints in it. If ctx ends before the load does, the
// verdict is about what was sent by then.
func (l *load) measure(ctx context.Context, out io.Writer, more func()) error {
	l.out, l.client = out, &http.Client{Transport: l.wire, Timeout: clientTimeout}
	if l.wire == nil {
		l.client.Transport = &http.Transport{MaxIdleConnsPerHost: maxOpen, DisableCompression: true}
		defer l.client.CloseIdleConnections()
	}
	l.seen = map[string]bool{}
	for _, counts := range []*[]int{&l.sent, &l.open, &l.skipped, &l.sentAt} {
		*counts = make([]int, len(l.targets))
	}
	l.start = time.Now()
	if err := l.first(ctx); err != nil {
		return err
	}
	l.start = time.Now()
	following, stop := context.WithCancel(context.Background())
	followed := make(chan struct{})
	go func() {
		defer close(followed)
		l.follow(following)
	}()
	var wg sync.WaitGroup
	for i := range l.targets {
		wg.Go(func() { l.send(ctx, i, false, l.gets()) })
		wg.Go(func() { l.send(ctx, i, true, l.posts()[1:]) })
	}
	wg.Wait()
	stop()
	<-followed
	return errors.Join(context.Cause(ctx), l.conclude(more))
}

// first sends the first POST to each target, which tells PostgreSQL's clock. A target that does not answer is an error now, not a
// table of errors later.
func (l *load) first(ctx context.Context) error {
	for i, t := range l.targets {
		s := l.ask(ctx, i, true, time.Since(l.start))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if !s.succeeded() {
			return fmt.Errorf("instance %s: POST %s/items/create: %s", t.name, t.url, s.failure)
		}
		l.samples = append(l.samples, s)
		if l.clock.IsZero() || s.now.Before(l.clock) {
			l.clock = s.now
		}
	}
	return nil
}

// send sends requests to one target when they are due, and returns when all are answered.
func (l *load) send(ctx context.Context, target int, post bool, when []time.Duration) {
	var wg sync.WaitGroup
	defer wg.Wait()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for _, due := range when {
		timer.Reset(time.Until(l.start.Add(due)))
		select {
		case <-timer.C:
		case <-ctx.Done():
			return
		}
		if !l.begin(target, post) {
			continue
		}
		wg.Go(func() { l.answered(l.ask(ctx, target, post, due), ctx.Err() != nil) })
	}
}

// begin counts a GET, unless too many are open.
func (l *load) begin(target int, post bool) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if post {
		return true
	}
	if l.open[target] >= maxOpen {
		l.skipped[target]++
		l.note("skipped", target, time.Since(l.start), fmt.Sprintf("%d requests have no answer yet, so the load sends no more", maxOpen))
		return false
	}
	l.open[target]++
	l.sent[target]++
	return true
}

// answered keeps a sample. A request that was open when the program was stopped is not counted.
func (l *load) answered(s sample, stopped bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !s.post {
		l.open[s.target]--
	}
	if stopped && s.status == 0 {
		return
	}
	l.samples = append(l.samples, s)
	switch {
	case s.failure != "":
		l.note(s.failure, s.target, s.answered, explain(s.failure))
	case s.limiter >= slow && !l.seen["slow"]:
		l.seen["slow"] = true
		l.line(s.target, s.answered, fmt.Sprintf("a request waited %s in the limiter for its decision", short(s.limiter)))
	}
}

// ask sends a request and returns what became of it.
func (l *load) ask(ctx context.Context, target int, post bool, due time.Duration) sample {
	s := sample{target: target, post: post, due: due, sent: time.Since(l.start), limiter: -1}
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
	if err != nil {
		return nameOf(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(io.LimitReader(resp.Body, 64<<10))
	if err != nil {
		return nameOf(err)
	}
	s.status = resp.StatusCode
	if took, asked := limiterTime(resp.Header); asked {
		s.limiter = took
	}
	switch s.status {
	case http.StatusOK, http.StatusCreated:
		var a answer
		if err := json.Unmarshal(text, &a); err != nil || a.Now.IsZero() {
			return "an answer that is not from this program"
		}
		s.now = a.Now
	case http.StatusTooManyRequests:
	default:
		if cause := resp.Header.Get(limiterError); cause != "" {
			return cause
		}
		return fmt.Sprintf("status %d", s.status)
	}
	return ""
}

// nameOf returns an error of the network without the method and the URL.
func nameOf(err error) string {
	if e, ok := errors.AsType[interface {
		error
		Timeout() bool
	}](err); ok && e.Timeout() {
		return "no answer"
	}
	text := err.Error()
	return strings.TrimSpace(text[strings.LastIndex(text, ": ")+1:])
}

// explanations say what a failure means: PostgreSQL's codes, and names of this program.
var explanations = map[string]string{
	"55P03":      "another request holds the user's row at this moment, so this one is refused, even if the limit has room",
	"40P01":      "a deadlock: two inserts wait for each other, until PostgreSQL ends one after deadlock_timeout",
	undecided:    "the limiter has not decided within " + callTimeout.String() + "; each request waits for others that wait",
	"status 500": "the service has failed, because the database does not answer",
	"no answer":  "the instance has not answered within " + clientTimeout.String(),
	storeAway:    "PostgreSQL has not answered weir in time, and the limiter rejects what it cannot decide",
}

func explain(failure string) string {
	if text, ok := explanations[failure]; ok {
		return text
	}
	return "the request was neither granted nor rejected"
}
